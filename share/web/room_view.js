// A room on the page: who is there, what each has said, who types, and where one writes.
import { el, button } from './dom.js';
import { kept } from './memory.js';
import { notify, openMenu, sentence } from './overlays.js';
import { Room } from './room.js';

const N_HUES = 6;

/** @param {string} participant */
function hueOf(participant) {
  let sum = 0;
  for (const c of participant) sum = (31 * sum + c.charCodeAt(0)) % 4093;
  return sum % N_HUES;
}

export class RoomView {
  #drawn = 0; // entries
  #drawnOf = null; // the array that they are of
  #isAtEnd = true;
  #wasEnded = false;
  /** @type {Map<string, {node: HTMLElement, name: HTMLElement, words: Text}>} what agents are saying, by participant */
  #speakers = new Map();

  /** @param {HTMLElement} host @param {any} app @param {string} name of the room */
  constructor(host, app, name) {
    this.app = app;
    this.name = name;
    /** @type {Room|null} */
    this.room = null;
    this.people = el('ul', { class: 'people', 'aria-label': 'People' });
    this.log = el('div', { class: 'thread-inner', role: 'log', 'aria-label': 'What was said' });
    this.scroller = el('div', { class: 'thread', tabindex: '0', 'aria-label': 'Room', on: { scroll: () => {
      this.#isAtEnd = this.scroller.scrollTop + this.scroller.clientHeight > this.scroller.scrollHeight - 40;
    } } }, this.log);
    this.speaking = el('div', { class: 'room-coming' });
    this.coming = el('div', { class: 'room-coming' });
    this.state = el('p', { class: 'fine room-state', role: 'status' });
    this.input = el('textarea', { rows: '1', placeholder: 'Message', 'aria-label': 'Message to the room', dir: 'auto', maxlength: '16384',
      on: { input: () => this.room?.typing(this.input.value.trim() !== ''), keydown: (event) => this.#key(event) } });
    this.composer = el('form', { class: 'composer', 'aria-label': 'Write to the room', on: { submit: (event) => { event.preventDefault(); this.#say(this.input.value); } } },
      this.input, el('div', { class: 'composer-bar' }, el('span', { class: 'grow' }), button('send', 'Send', () => this.#say(this.input.value), { class: 'ghost send' })));
    this.inviteButton = button('plus', 'Invite an agent', () => this.#inviteMenu(), { attrs: { 'aria-haspopup': 'menu' } });
    this.leaveButton = button('close', 'Leave the room', () => this.room?.leave());
    this.dock = el('div', { class: 'dock' }, this.speaking, this.coming, this.composer, this.state);
    this.node = el('section', { class: 'room-view', 'aria-label': `Room ${name}` },
      el('header', { class: 'head' }, button('menu', 'Show the list', () => app.toggleSidebar(), { class: 'ghost open-list' }),
        el('h2', { class: 'title', dir: 'auto', text: name }), this.inviteButton, this.leaveButton),
      this.people, this.scroller, this.dock);
    host.append(this.node);
    if (Room.tokenOf(name)) this.#enter(kept.get('person', ''));
    else this.#ask();
  }

  close() {
    this.room?.close();
    this.node.remove();
  }

  // --- coming in ---

  #ask(why = '') {
    const input = el('input', { id: 'person', maxlength: '32', autocomplete: 'nickname', value: kept.get('person', ''), placeholder: 'the server makes one up' });
    const form = el('form', { class: 'room-door', on: { submit: (event) => {
      event.preventDefault();
      kept.set('person', input.value.trim() || null);
      form.remove();
      this.#enter(input.value.trim());
    } } },
    why && el('p', { class: 'muted', text: why }), el('h3', { text: `Come into ${this.name}` }),
    el('p', { class: 'muted', text: 'People and agents write to each other here. You read what is said from the room’s beginning.' }),
    el('label', { for: 'person', text: 'Your name' }), input, el('button', { class: 'button primary', text: 'Join' }));
    this.node.classList.add('is-outside');
    this.log.replaceChildren(form);
    input.focus();
  }

  /** @param {string} person */
  #enter(person) {
    this.node.classList.remove('is-outside');
    this.#isAtEnd = true;
    this.#wasEnded = false;
    this.room = new Room(this.name, person);
    this.room.changed.on(() => this.draw());
    this.draw();
    this.input.focus();
  }

  // --- drawing ---

  draw() {
    const { room } = this;
    if (room.ended !== '') {
      if (!this.#wasEnded) this.#ask(sentence(room.ended === 'left' ? 'you have left the room' : room.ended));
      this.#wasEnded = true;
      return;
    }
    if (room.takenBack !== '') {
      this.input.value = [room.takenBack, this.input.value].filter(Boolean).join('\n');
      notify(room.failed ? sentence(room.failed) : 'Your last words may not have been heard. They are back in the field.');
      room.takenBack = '';
      room.failed = '';
    } else if (room.failed) {
      notify(sentence(room.failed));
      room.failed = '';
    }
    this.#drawPeople();
    if (room.entries !== this.#drawnOf) { // at first, and of another room of that name
      this.log.replaceChildren();
      this.#drawn = 0;
      this.#drawnOf = room.entries;
    }
    for (const entry of room.entries.slice(this.#drawn)) this.log.append(this.#entryNode(entry));
    this.#drawn = room.entries.length;
    this.#drawSpeaking();
    this.#drawComing();
    if (this.#isAtEnd) this.scroller.scrollTop = this.scroller.scrollHeight;
  }

  #drawPeople() {
    this.people.replaceChildren(...[...this.room.members].map(([id, { name, isAway, isTyping, isAgent }]) => el('li', {
      class: `person hue-${hueOf(id)}${isAway ? ' is-away' : ''}`, title: isAway ? `${name} is away` : isTyping ? `${name} types` : null },
    el('bdi', { text: name }), isAgent && el('span', { class: 'tag', text: 'agent' }), isAway && el('span', { class: 'tag', text: 'away' }))));
  }

  /** What agents are saying. A speaker's node stays the same, so that its button keeps the focus and a click that has begun. */
  #drawSpeaking() {
    const { room, speaking } = this;
    const isAtEnd = speaking.scrollTop + speaking.clientHeight > speaking.scrollHeight - 40;
    for (const [id, { node }] of this.#speakers) {
      if (room.pieces.has(id)) continue;
      node.remove();
      this.#speakers.delete(id);
    }
    for (const [id, text] of room.pieces) {
      let one = this.#speakers.get(id);
      if (!one) {
        const name = el('b'), words = document.createTextNode('');
        const node = el('div', { class: `said hue-${hueOf(id)}` }, name, el('div', { class: 'said-text' }, words, el('span', { class: 'caret' })),
          button('stop', 'Stop', () => this.room?.stop()));
        one = { node, name, words };
        this.#speakers.set(id, one);
        speaking.append(node);
      }
      one.name.textContent = room.members.get(id)?.name ?? '';
      one.words.data = text;
    }
    if (isAtEnd) speaking.scrollTop = speaking.scrollHeight;
  }

  /** What else is not in the log yet: words under way, who types. */
  #drawComing() {
    const { room } = this;
    const others = [...room.members].filter(([id, m]) => m.isTyping && !room.isMe(id) && !room.pieces.has(id)).map(([, m]) => m.name);
    this.coming.replaceChildren(...room.unsaid.map((text) => el('div', { class: 'said is-mine is-unsaid' }, el('div', { class: 'said-text', text }))));
    this.state.textContent = !room.isIn ? (room.wasIn ? 'The connection was lost. Connecting again…' : 'Coming in…')
      : others.length === 0 ? '' : others.length === 1 ? `${others[0]} types…` : `${others.join(', ')} type…`;
  }

  /** @param {import('./room.js').Entry} entry */
  #entryNode({ seq, kind, name, text, participant, quickReplies, isMine }) {
    if (kind !== 'said') {
      return el('p', { class: 'room-event', data: { seq } }, el('bdi', { text: name }), ` ${kind === 'joined' ? 'joined' : text || kind}`);
    }
    return el('div', { class: `said hue-${hueOf(participant)}${isMine ? ' is-mine' : ''}`, data: { seq } },
      el('b', {}, el('bdi', { text: name })), el('div', { class: 'said-text', text }),
      quickReplies.length > 0 && el('div', { class: 'quick-replies' }, ...quickReplies.map((reply) => el('button', {
        type: 'button', class: 'button', text: reply, on: { click: () => this.#say(reply) } }))));
  }

  // --- writing ---

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (event.key !== 'Enter' || event.shiftKey || event.isComposing) return;
    event.preventDefault();
    this.#say(this.input.value);
  }

  /** @param {string} text */
  #say(text) {
    if (text.trim() === '' || this.room === null) return;
    if (text === this.input.value) this.input.value = '';
    this.#isAtEnd = true;
    this.room.say(text.trim());
  }

  #inviteMenu() {
    openMenu(this.inviteButton, this.app.library.models.map(({ name }) => ({ label: name, act: () => this.room?.invite(name) })));
  }
}
