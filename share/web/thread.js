// The turns of the conversation that is shown, and the words for who only hears it.
import { el, button } from './dom.js';
import { logo, sentence } from './overlays.js';
import { TurnView } from './turn_view.js';

const NEAR_END = 90; // pixels: who is so near wants to follow
const LAID_OUT = 30; // the last turns, which are laid out also while they are not in view
const IDEAS = [
  'Explain to a ten-year-old why the sky is blue.',
  'Write a haiku about patience.',
  'Plan a weekend in Lisbon for someone who dislikes crowds.',
  'Show me a Python function that merges two sorted lists.',
];

/** Tells a screen reader what has been written, by the sentence. */
class Speaker {
  #said = 0;
  node = el('div', { class: 'unseen', role: 'log', 'aria-live': 'polite', 'aria-label': 'Reply' });

  /** @param {string} text so far @param {boolean} isWhole */
  follow(text, isWhole) {
    if (text.length < this.#said) this.#said = 0;
    const fresh = text.slice(this.#said);
    const end = isWhole ? fresh.length : fresh.search(/[.!?:]\s(?!.*[.!?:]\s)/s) + 1;
    if (end <= 0 || fresh.length > 5000) return;
    this.#said += end;
    this.node.replaceChildren(el('p', { text: fresh.slice(0, end) }));
  }

  reset() {
    this.#said = 0;
    this.node.replaceChildren();
  }
}

export class Thread {
  /** @type {Map<number, TurnView>} */
  #views = new Map();
  #chat = null;
  #speaker = new Speaker();
  #follows = true;

  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.inner = el('div', { class: 'thread-inner' });
    this.node = el('section', { class: 'thread', id: 'thread', tabindex: '-1', 'aria-label': 'Conversation',
      on: { scroll: () => this.#onScroll() } }, this.inner, this.#speaker.node);
    new ResizeObserver(() => this.#follows && this.scrollToEnd()).observe(this.node);
    this.toEnd = button('down', 'To the end', () => this.scrollToEnd(), { class: 'button to-end', attrs: { hidden: true } });
  }

  /** @param {import('./chat.js').Chat} chat */
  draw(chat) {
    if (chat !== this.#chat) {
      this.#chat = chat;
      this.#views.clear();
      this.inner.replaceChildren();
      this.#speaker.reset();
      this.#follows = true;
    }
    const { run } = chat;
    const last = Math.max(chat.turns.length, run ? run.request.turn : 0);
    if (last === 0) {
      this.#drawNothing(chat);
      return;
    }
    if (this.#views.size === 0) this.inner.replaceChildren();
    for (const turn of this.#views.keys()) if (turn > last) this.#drop(turn);
    const tree = chat.id === null ? null : this.app.library.treeOf(chat.id);
    const path = tree?.path(chat.id) ?? [];
    for (let turn = 1; turn <= last; turn++) this.#drawTurn(chat, turn, last, tree, path[turn - 1]);
    if (run) this.#speaker.follow(run.reply.text, run.isOver);
    if (this.#follows) this.scrollToEnd();
  }

  #drawTurn(chat, turn, last, tree, treeNode) {
    let view = this.#views.get(turn);
    if (view === undefined) {
      view = new TurnView(turn, this.app);
      this.#views.set(turn, view);
      this.inner.append(view.node);
    }
    const siblings = treeNode ? tree.siblings(treeNode) : [];
    const run = chat.run?.request.turn === turn && chat.turns.length < turn ? chat.run : null;
    view.set(chat.turnAt(turn), run, { index: siblings.indexOf(treeNode), count: siblings.length },
      turn === last);
    view.node.classList.toggle('is-past', turn <= last - LAID_OUT);
  }

  /** @param {number} turn */
  #drop(turn) {
    this.#views.get(turn).node.remove();
    this.#views.delete(turn);
  }

  #drawNothing(chat) {
    this.#views.clear();
    if (chat.error?.isPassing) {
      this.inner.replaceChildren(el('div', { class: 'welcome', role: 'status' }, logo(), el('h2', { text: 'The server does not answer' }),
        el('p', { text: 'The conversation appears as soon as it does.' })));
      return;
    }
    if (chat.error) {
      this.inner.replaceChildren(el('div', { class: 'welcome' }, logo(), el('h2', { text: 'This conversation is not here' }),
        el('p', { text: sentence(chat.error.message) }), button('plus', 'New conversation', () => this.app.openNew(), { text: true, class: 'button primary' })));
      return;
    }
    if (chat.id !== null && chat.conversation === null) {
      this.inner.replaceChildren();
      return;
    }
    this.inner.replaceChildren(el('div', { class: 'welcome' }, logo(),
      el('h2', { text: 'What would you like to talk about?' }),
      el('p', { text: 'Conversations live on the server. Change a message or ask for another reply: each becomes a branch, and nothing is lost.' }),
      el('div', { class: 'ideas' }, ...IDEAS.map((text) => el('button', { type: 'button', class: 'idea', text, on: { click: () => this.app.suggest(text) } })))));
  }

  #onScroll() {
    const { scrollHeight, scrollTop, clientHeight } = this.node;
    this.#follows = scrollHeight - scrollTop - clientHeight < NEAR_END;
    this.toEnd.hidden = this.#follows;
  }

  scrollToEnd() {
    this.#follows = true;
    this.node.scrollTop = this.node.scrollHeight;
  }

  /** Shows a turn. @param {number} turn */
  scrollToTurn(turn) {
    const view = this.#views.get(turn);
    if (view === undefined) return;
    this.#follows = false;
    view.node.scrollIntoView({ block: 'start' });
    for (const other of this.#views.values()) other.node.classList.toggle('is-pointed', other === view);
    setTimeout(() => view.node.classList.remove('is-pointed'), 1500);
  }
}
