// A person in a room, over the daemon's WebSocket: a lost connection is made again, each entry comes once, and what is said is said
// once. The person stays the same as long as the tab, by its token.
import { keyInUse } from './key.js';
import { ofTab } from './memory.js';
import { Signal } from './signal.js';

const ROOM_FIRST_DELAY_MS = 300;
const ROOM_LAST_DELAY_MS = 15000;
const TYPING_MS = 6000; // without a key, the person does not type any more
const FORBIDDEN = 4003;
const NO_MORE = new Set([FORBIDDEN, 1003, 1007, 1008, 1009]); // codes that connecting again does not change

/** @typedef {{seq: number, kind: string, name: string, text: string, participant: string, at: number, quickReplies: string[], isMine: boolean, isAgent: boolean}} Entry */

export class Room {
  changed = new Signal();
  /** @type {Entry[]} */
  entries = [];
  /** @type {Map<string, {name: string, isAway: boolean, isTyping: boolean, isAgent: boolean}>} */
  members = new Map();
  /** @type {Map<string, string>} what agents are saying, by participant */
  pieces = new Map();
  /** @type {string[]} what was said, and is not in the room yet; the first is under way */
  unsaid = [];
  isIn = false;
  wasIn = false;
  ended = ''; // why the person is not in the room any more
  takenBack = ''; // words that may not have been heard, for the field

  #socket = null;
  #last = 0;
  #clientSeq = 0;
  #delay = ROOM_FIRST_DELAY_MS;
  #timer = 0;
  #typingTimer = 0;
  #isTyping = false;
  #isLost = false; // the token is nothing any more
  #mine = new Set(); // the ids that the person had

  /** @param {string} name of the room @param {string} person */
  constructor(name, person) {
    this.name = name;
    this.person = person;
    this.#connect();
  }

  static tokenOf(name) {
    return ofTab.get(`room.${name}`);
  }

  #connect() {
    const socket = new WebSocket(`${location.protocol === 'https:' ? 'wss' : 'ws'}://${location.host}/v1/rooms/socket`, 'parley.rooms.v1');
    this.#socket = socket;
    socket.addEventListener('open', () => {
      const token = Room.tokenOf(this.name);
      if (!token) { // a new person reads all: the room may be another one of that name
        this.#last = 0;
        this.entries = [];
      }
      this.#send({ hello: { ...(token ? { token } : { name: this.person }), ...(keyInUse() && { key: keyInUse() }) } });
      this.#send({ join: { room: this.name, afterSeq: this.#last } });
    });
    socket.addEventListener('message', ({ data }) => socket === this.#socket && this.#take(JSON.parse(data)));
    socket.addEventListener('close', (event) => socket === this.#socket && this.#lose(event));
  }

  /** @param {object} frame */
  #send(frame) {
    if (this.#socket?.readyState === WebSocket.OPEN) this.#socket.send(JSON.stringify(frame));
  }

  /** @param {CloseEvent} event */
  #lose({ code, reason }) {
    this.isIn = false;
    this.#socket = null;
    if (this.ended !== '') return;
    if (this.#isLost) { // too long away: the same name is another person now, who must not say things twice
      ofTab.set(`room.${this.name}`, null);
      this.#isLost = false;
      this.takenBack = this.unsaid.join('\n');
      this.unsaid = [];
      this.#clientSeq = 0;
    } else if (NO_MORE.has(code)) {
      this.#end(reason || 'the server has closed the connection');
      return;
    }
    this.#timer = setTimeout(() => this.#connect(), Math.random() * this.#delay);
    this.#delay = Math.min(2 * this.#delay, ROOM_LAST_DELAY_MS);
    this.changed.emit();
  }

  /** @param {string} why */
  #end(why) {
    this.ended = why;
    this.isIn = false;
    ofTab.set(`room.${this.name}`, null);
    this.close();
    this.changed.emit();
  }

  /** Ends the connection: the person is away, and comes back with the tab. */
  close() {
    clearTimeout(this.#timer);
    clearTimeout(this.#typingTimer);
    const socket = this.#socket;
    this.#socket = null;
    socket?.close();
  }

  // --- what comes ---

  #take(frame) {
    const [[kind, body]] = Object.entries(frame);
    this.#takers[kind]?.(body); // a newer server may have others
    this.changed.emit();
  }

  #takers = {
    welcome: ({ participant, token, name }) => {
      this.person = name;
      this.#mine.add(participant);
      ofTab.set(`room.${this.name}`, token);
    },
    snapshot: ({ members = [], nextClientSeq }) => {
      const isFirst = !this.isIn;
      this.isIn = this.wasIn = true;
      this.#delay = ROOM_FIRST_DELAY_MS;
      this.members = new Map();
      this.pieces = new Map();
      for (const member of members) this.#takeMember(member);
      if (this.unsaid.length === 0 || this.#clientSeq === 0) this.#clientSeq = nextClientSeq;
      if (isFirst) this.#sayFirst(); // perhaps once more: the number tells
    },
    member: (member) => this.#takeMember(member),
    entry: (entry) => this.#takeEntry(entry),
    piece: ({ participant, offset = '0', text = '' }) => {
      const known = Number(offset) === 0 ? '' : this.pieces.get(participant) ?? '';
      this.pieces.set(participant, known + text);
    },
    ack: ({ clientSeq }) => this.#settle(clientSeq),
    left: ({ why = '' }) => this.#end(why || 'left'),
    error: (error) => this.#takeError(error),
  };

  #takeMember({ participant, name, presence, typing = false, kind }) {
    this.members.set(participant, { name, isAway: presence === 'ROOM_PRESENCE_AWAY', isTyping: typing, isAgent: kind === 'ROOM_KIND_AGENT' });
  }

  #takeEntry({ seq, kind, name = '', text = '', participant = '', unixMs, quickReplies = [], clientSeq, fromKind }) {
    if (seq <= this.#last) return;
    this.#last = seq;
    const isMine = this.#mine.has(participant);
    const word = kind.replace('ROOM_ENTRY_KIND_', '').toLowerCase();
    const member = this.members.get(participant);
    if (word === 'left') this.members.delete(participant);
    else if (word === 'joined' && !member) this.members.set(participant, { name, isAway: false, isTyping: false, isAgent: fromKind === 'ROOM_KIND_AGENT' });
    else if (word === 'said' && member) member.isTyping = false;
    if (word !== 'joined') this.pieces.delete(participant);
    if (isMine && clientSeq) this.#settle(clientSeq);
    this.entries.push({ seq, kind: word, name, text, participant, at: Number(unixMs), quickReplies, isMine, isAgent: fromKind === 'ROOM_KIND_AGENT' });
  }

  #takeError({ code, message, clientSeq, retryMs, field }) {
    if (clientSeq) {
      if (clientSeq !== this.#clientSeq || this.unsaid.length === 0) return;
      if (retryMs) {
        setTimeout(() => this.#sayFirst(), retryMs);
        return;
      }
      this.takenBack = this.unsaid.shift();
      this.failed = message;
      this.#sayFirst();
    } else if (code === 'NOT_FOUND' && field === 'token') {
      this.#isLost = true; // the server closes the connection
    } else if (code === 'OUT_OF_RANGE' && field === 'after_seq') { // another room of that name
      this.#last = 0;
      this.entries = [];
      this.#send({ join: { room: this.name } });
    } else if (!this.isIn && retryMs) {
      setTimeout(() => this.#send({ join: { room: this.name, afterSeq: this.#last } }), retryMs);
    } else if (!this.isIn) {
      this.#end(message);
    } else if (!retryMs) {
      this.failed = message;
    }
  }

  // --- what the person does ---

  #settle(clientSeq) {
    if (this.unsaid.length === 0 || clientSeq !== this.#clientSeq) return;
    this.#clientSeq += 1;
    this.unsaid.shift();
    this.#sayFirst();
  }

  #sayFirst() {
    if (this.isIn && this.unsaid.length > 0) this.#send({ say: { room: this.name, clientSeq: this.#clientSeq, text: this.unsaid[0] } });
  }

  /** @param {string} text */
  say(text) {
    clearTimeout(this.#typingTimer);
    this.#isTyping = false; // the entry says so
    this.unsaid.push(text);
    if (this.unsaid.length === 1) this.#sayFirst();
    this.changed.emit();
  }

  /** @param {boolean} isTyping */
  typing(isTyping) {
    clearTimeout(this.#typingTimer);
    if (isTyping) this.#typingTimer = setTimeout(() => this.typing(false), TYPING_MS);
    if (isTyping === this.#isTyping || !this.isIn) return;
    this.#isTyping = isTyping;
    this.#send({ typing: { room: this.name, on: isTyping } });
  }

  /** @param {string} agent a model's name */
  invite(agent) {
    this.#send({ invite: { room: this.name, agent } });
  }

  stop() {
    this.#send({ stop: { room: this.name } });
  }

  leave() {
    if (this.isIn) this.#send({ leave: { room: this.name } });
    else this.#end('left');
  }

  /** @param {string} participant */
  isMe(participant) {
    return this.#mine.has(participant);
  }
}
