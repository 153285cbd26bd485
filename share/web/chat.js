// One conversation as the page sees it: its turns, the turn that runs, and how turns are asked for. A chat without an id is one
// that the first message opens.
import { unary } from './connect.js';
import { kept } from './memory.js';
import { Signal } from './signal.js';
import { TurnRun } from './turn_run.js';

const TURN_PAGE = 1000; // turns
const TITLE_LENGTH = 60;

/** Digits of a random number below 2^53, for seeds. */
function randomSeed() {
  const [high, low] = crypto.getRandomValues(new Uint32Array(2));
  return String((high & 0x1fffff) * 2 ** 32 + low);
}

/** @returns {string} */
export function requestId() {
  return [...crypto.getRandomValues(new Uint8Array(16))].map((byte) => byte.toString(16).padStart(2, '0')).join('');
}

/** What messages ask: the last text of the user's. @param {any[]|undefined} messages @returns {string|undefined} */
export function askedOf(messages) {
  return (messages?.findLast((m) => !m.role || m.role === 'user') ?? messages?.at(-1))?.text;
}

/** @param {string} text */
export function titleOf(text) {
  const line = text.trim().split('\n', 1)[0].replace(/\s+/g, ' ');
  return line.length <= TITLE_LENGTH ? line : `${line.slice(0, TITLE_LENGTH - 1).trimEnd()}…`;
}

/** Tools as the wire has them, of a list in OpenAI's form or in ours. @param {string} json */
export function toolsOf(json) {
  const list = JSON.parse(json);
  if (!Array.isArray(list)) throw new Error('a list of tools is expected: [{"name": …}]');
  return list.map((entry) => {
    const tool = entry.function ?? entry;
    if (typeof tool.name !== 'string') throw new Error('each tool needs a name');
    const { name, description, parameters } = tool;
    return { name, description, parameters: typeof parameters === 'object' ? JSON.stringify(parameters) : parameters };
  });
}

/** @typedef {{schema: string, tools: string, choice: string, effort: string}} Wishes what each turn is asked with, beside the conversation's own */

/** @returns {Wishes} */
const noWishes = () => ({ schema: '', tools: '', choice: '', effort: '' });

export class Chat {
  changed = new Signal();
  /** @type {any} the server's Conversation; null while it is not open */
  conversation = null;
  /** @type {any[]} complete turns, as TranscriptTurn has them */
  turns = [];
  /** @type {TurnRun|null} */
  run = null;
  error = null;
  /** @type {string|null} the text of a message whose turn another one has taken */
  rejected = null;

  /** @param {import('./library.js').Library} library @param {string|null} id */
  constructor(library, id) {
    this.library = library;
    this.id = id;
    this.draft = { model: '', system: '', sampling: {} };
    this.wishes = { ...noWishes(), ...kept.get(`wishes.${id}`, {}) };
    this.openId = requestId();
  }

  get isBusy() {
    return this.run !== null && !this.run.isOver;
  }

  get sampling() {
    return this.conversation?.sampling ?? this.draft.sampling;
  }

  get system() {
    return this.conversation?.system ?? this.draft.system;
  }

  get modelName() {
    return this.conversation?.model ?? this.draft.model;
  }

  /** Tokens that are in the context now. */
  get contextTokens() {
    if (this.isBusy && this.run.accepted) return (this.run.accepted.promptTokens ?? 0) + this.run.reply.tokens;
    return this.conversation?.contextTokens ?? 0;
  }

  /** Reads the conversation, and goes on with a turn that was under way. */
  async load() {
    let pageToken = '';
    const turns = [];
    let conversation;
    do {
      conversation = await unary('Conversations/Get', { conversation: this.id, pageSize: TURN_PAGE, pageToken });
      turns.push(...(conversation.transcript ?? []));
      pageToken = conversation.nextPageToken ?? '';
    } while (pageToken !== '');
    this.conversation = conversation;
    this.turns = turns;
    this.library.remember(conversation);
    this.error = null;
    if (this.run?.state === 'done' && turns.length >= this.run.request.turn) this.run = null;
    if (!this.isBusy) this.#rejoin();
    this.changed.emit();
  }

  #rejoin() {
    const { generation = 1, state } = this.conversation;
    const next = this.turns.length + 1;
    const pending = kept.get(`pending.${this.id}`);
    if (pending && (pending.request.turn !== next || pending.generation !== generation)) kept.set(`pending.${this.id}`, null);
    else if (pending) this.#start(pending.request);
    else if (state === 'CONVERSATION_STATE_BUSY') {
      this.#start({ conversation: this.id, turn: next, resumeFrom: { generation, turn: next } });
    }
  }

  /** @param {object[]} messages @param {object} [sampling] of this turn alone */
  async send(messages, sampling) {
    if (this.id === null) await this.#open(messages);
    const request = { conversation: this.id, turn: this.turns.length + 1, messages, ...this.#wished() };
    if (sampling) request.sampling = sampling;
    kept.set(`pending.${this.id}`, { request, generation: this.conversation.generation ?? 1 });
    this.#start(request);
  }

  /** @param {any[]} messages */
  async #open(messages) {
    const title = titleOf(messages.at(-1)?.text ?? '');
    const { model, system, sampling } = this.draft;
    const opened = await unary('Conversations/Open', { model, system, sampling, metadata: title ? { title } : {}, requestId: this.openId });
    this.id = opened.conversation;
    this.saveWishes(this.wishes);
    await this.load();
  }

  #wished() {
    const { schema, tools, choice, effort } = this.wishes;
    return {
      ...(schema.trim() && { constraint: { jsonSchema: schema } }),
      ...(tools.trim() && { tools: toolsOf(tools), ...(choice && { toolChoice: { mode: choice } }) }),
      ...(effort && { reasoning: { effort } }),
    };
  }

  /** @param {object} request */
  async #start(request) {
    const run = new TurnRun(request, () => this.changed.emit());
    this.run = run;
    this.library.setRunning(this.id, run.request.turn);
    this.changed.emit();
    await run.follow();
    if (!run.isOver) return; // left
    kept.set(`pending.${this.id}`, null);
    this.library.setRunning(this.id, null);
    if (run.error?.code === 'already_exists') {
      this.rejected = request.messages?.at(-1)?.text ?? null;
      this.run = null;
    }
    await this.load().catch((error) => {
      this.error = error;
    });
    this.changed.emit();
  }

  stop() {
    return this.run?.stop();
  }

  /** Another chat with the first turns of this one. @param {number} atTurn */
  async fork(atTurn) {
    const { pinned, ...inherited } = this.conversation.metadata ?? {};
    const metadata = { ...inherited, forked_at: String(atTurn), forked_generation: String(this.conversation.generation ?? 1) };
    const forked = await unary('Conversations/Fork', { conversation: this.id, atTurn, metadata, requestId: requestId() });
    const chat = new Chat(this.library, forked.conversation);
    chat.saveWishes(this.wishes);
    await chat.load();
    return chat;
  }

  /** The turn once more, in a fork, with another seed. @param {number} turn */
  async regenerate(turn) {
    const { messages } = this.turnAt(turn);
    const chat = await this.fork(turn - 1);
    await chat.send(messages, { seed: randomSeed() });
    return chat;
  }

  /** The turn with another text, in a fork. @param {number} turn @param {string} text */
  async edit(turn, text) {
    const messages = this.turnAt(turn).messages.map((m) => ({ ...m }));
    messages[messages.length - 1].text = text;
    const chat = await this.fork(turn - 1);
    await chat.send(messages);
    return chat;
  }

  /** @param {number} turn */
  turnAt(turn) {
    return this.turns[turn - 1] ?? { turn, messages: this.run?.request.messages ?? [], reply: '' };
  }

  /** @param {object} sampling replaces the conversation's */
  async setSampling(sampling) {
    if (this.id === null) this.draft.sampling = sampling;
    else {
      this.conversation = await unary('Conversations/Update', { conversation: this.id, sampling });
      this.library.remember(this.conversation);
    }
    this.changed.emit();
  }

  /** @param {Wishes} wishes */
  saveWishes(wishes) {
    this.wishes = { ...wishes };
    const isEmpty = Object.values(wishes).every((wish) => wish === '');
    if (this.id !== null) kept.set(`wishes.${this.id}`, isEmpty ? null : wishes);
    this.changed.emit();
  }

  /** Gives the server the conversation back. */
  async close() {
    this.run?.leave();
    await unary('Conversations/Close', { conversation: this.id });
    kept.set(`pending.${this.id}`, null);
    kept.set(`wishes.${this.id}`, null);
    this.library.forget(this.id);
  }
}
