// Which conversations and models the server has: the newest at once, the rest while nothing else is to do.
import { unary } from './connect.js';
import { familiesOf, rootOf, Tree } from './families.js';
import { Signal } from './signal.js';

const FIRST_PAGE = 50;
const LIST_PAGE = 1000;
const POLL_MS = 4000;

export class Library {
  /** @type {Map<string, any>} */
  all = new Map();
  /** @type {any[]} */
  models = [];
  changed = new Signal();
  isLoaded = false; // all pages have been read
  total = 0;
  /** @type {Map<string, number>} the turn that each conversation computes now, as far as this page follows it */
  running = new Map();
  #families = null;
  #trees = new Map();

  /** The newest conversations and the models. */
  async refresh() {
    const isFirst = this.models.length === 0;
    const [page, models] = await Promise.all([unary('Conversations/List', { pageSize: FIRST_PAGE }), unary('Models/List', isFirst ? { all: true } : {})]);
    this.#takeModels(models.models ?? []);
    this.#take(page);
    if (this.isLoaded && this.total < this.all.size) this.isLoaded = false; // some are gone: read anew which
    if (this.total <= FIRST_PAGE) this.#keepOnly(page.conversations ?? []);
    if (!page.nextPageToken) this.isLoaded = true;
    this.#altered();
  }

  /** All models, those that a call would load, too. */
  async refreshModels() {
    this.models = (await unary('Models/List', { all: true })).models ?? [];
    this.#altered();
  }

  /** What is not loaded any more can be loaded again. @param {any[]} loaded */
  #takeModels(loaded) {
    const names = new Set(loaded.map((model) => model.name));
    const rest = this.models.filter((model) => !names.has(model.name));
    this.models = [...loaded, ...rest.map(({ name, architecture, context, error, state }) => ({
      name, architecture, context, state: 'MODEL_STATE_UNLOADED', error: state === 'MODEL_STATE_UNLOADED' ? error : undefined }))];
  }

  /** All others. */
  async complete() {
    if (this.isLoaded) return;
    const seen = [];
    let pageToken = '';
    do {
      const page = await unary('Conversations/List', { pageSize: LIST_PAGE, pageToken });
      this.#take(page);
      seen.push(...(page.conversations ?? []));
      pageToken = page.nextPageToken ?? '';
      this.#altered();
    } while (pageToken !== '');
    this.#keepOnly(seen);
    this.isLoaded = true;
    this.#altered();
  }

  /** Refreshes for ever, while the page is looked at. @param {(error: any) => void} failed @param {() => void} reached */
  poll(failed, reached) {
    const look = async () => {
      if (!document.hidden) {
        await this.refresh().then(() => this.complete()).then(reached, failed);
      }
      setTimeout(look, POLL_MS);
    };
    setTimeout(look, POLL_MS);
    document.addEventListener('visibilitychange', () => document.hidden || this.refresh().then(reached, failed));
  }

  /** @param {any} conversation */
  remember(conversation) {
    const { transcript, nextPageToken, ...rest } = conversation;
    this.all.set(rest.conversation, { ...rest, seenAt: Date.now() });
    this.#altered();
  }

  /** @param {string} id */
  forget(id) {
    this.all.delete(id);
    this.#altered();
  }

  /** @param {string} id @param {number|null} turn null: none */
  setRunning(id, turn) {
    if (turn === null) this.running.delete(id);
    else this.running.set(id, turn);
    this.#altered();
  }

  /** @returns {Map<string, any[]>} */
  get families() {
    this.#families ??= familiesOf(this.all);
    return this.#families;
  }

  /** The conversations that have a common root with this one. @param {string} id @returns {any[]} */
  familyOf(id) {
    const conversation = this.all.get(id);
    return conversation ? this.families.get(rootOf(this.all, conversation)) ?? [] : [];
  }

  /** @param {string} id @returns {Tree} */
  treeOf(id) {
    const conversation = this.all.get(id);
    const root = conversation ? rootOf(this.all, conversation) : id;
    if (!this.#trees.has(root)) this.#trees.set(root, new Tree(this.familyOf(id), this.running));
    return this.#trees.get(root);
  }

  /** @param {string} name '' for the default */
  model(name) {
    return this.models.find((m) => (name === '' ? m.isDefault : m.name === name)) ?? this.models[0];
  }

  /** Replaces entries of a conversation's metadata; undefined removes one. @param {string} id @param {Record<string, string|undefined>} changes */
  async describe(id, changes) {
    const { metadata } = await unary('Conversations/Get', { conversation: id, withoutTranscript: true });
    const entries = Object.fromEntries(Object.entries({ ...metadata, ...changes }).filter(([, value]) => value !== undefined));
    this.remember(await unary('Conversations/Update', { conversation: id, metadata: { entries } }));
  }

  /** @param {any} page */
  #take(page) {
    const now = Date.now();
    for (const conversation of page.conversations ?? []) this.all.set(conversation.conversation, { ...conversation, seenAt: now });
    this.total = page.total ?? 0;
  }

  /** @param {any[]} conversations */
  #keepOnly(conversations) {
    const ids = new Set(conversations.map((c) => c.conversation));
    for (const id of this.all.keys()) if (!ids.has(id)) this.all.delete(id);
  }

  #altered() {
    this.#families = null;
    this.#trees.clear();
    this.changed.emit();
  }
}

/** When something happened in a conversation last, in ms since 1970. @param {any} conversation */
export function activeAt(conversation) {
  return conversation.seenAt - Number(conversation.idleMs ?? 0);
}
