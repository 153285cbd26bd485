// The list of conversations: one row a family, the pinned first, then by their last activity. Rows are added as they come into
// view, so that ten thousand cost what a screen does.
import { el, button, icon } from './dom.js';
import { activeAt } from './library.js';
import { logo, openMenu } from './overlays.js';

const STEP = 60; // rows that are added at a time
const DAY_MS = 24 * 3600 * 1000;

/** @param {number} ms since 1970 */
function dayGroup(ms) {
  const midnight = new Date().setHours(0, 0, 0, 0);
  if (ms >= midnight) return 'Today';
  if (ms >= midnight - DAY_MS) return 'Yesterday';
  if (ms >= midnight - 7 * DAY_MS) return 'Last seven days';
  return new Date(ms).toLocaleDateString(undefined, { month: 'long', year: 'numeric' });
}

/** @param {number} ms since 1970 */
function ago(ms) {
  const minutes = Math.round((Date.now() - ms) / 60000);
  if (minutes < 1) return 'now';
  if (minutes < 60) return `${minutes} min`;
  if (minutes < 24 * 60) return `${Math.round(minutes / 60)} h`;
  return new Date(ms).toLocaleDateString(undefined, { day: 'numeric', month: 'short' });
}

/** What a conversation is called. @param {any} conversation */
export function nameOf(conversation) {
  return conversation.metadata?.title || `Untitled ${conversation.conversation.slice(0, 6)}`;
}

/**
 * @typedef {object} FamilyRow
 * @property {any} root whose name and pin count
 * @property {any} latest the one that a click opens
 * @property {any[]} members
 * @property {number} at
 */

/** @param {Map<string, any[]>} families @returns {FamilyRow[]} */
function familyRows(families) {
  return [...families].map(([rootId, members]) => {
    const latest = members.reduce((a, b) => (activeAt(b) > activeAt(a) ? b : a));
    return { root: members.find((m) => m.conversation === rootId), latest, members, at: activeAt(latest) };
  }).sort((a, b) => Number(Boolean(b.root.metadata?.pinned)) - Number(Boolean(a.root.metadata?.pinned)) || b.at - a.at);
}

export class Sidebar {
  #shown = STEP;
  #rows = [];
  #key = ''; // of the rows that are drawn

  /** @param {HTMLElement} host @param {any} app */
  constructor(host, app) {
    this.host = host;
    this.app = app;
    this.search = el('input', { type: 'search', placeholder: 'Search', 'aria-label': 'Search conversations', autocomplete: 'off', spellcheck: 'false',
      on: { input: () => this.#reset(), keydown: (event) => event.key === 'ArrowDown' && this.#focusRow(0, event) } });
    this.list = el('ul', { class: 'list', 'aria-label': 'Conversations', on: { keydown: (event) => this.#walk(event) } });
    this.more = el('li', { 'aria-hidden': 'true' });
    new IntersectionObserver((entries) => entries.some((e) => e.isIntersecting) && this.#addRows(), { root: this.list, rootMargin: '400px' })
      .observe(this.more);
    this.status = el('span', { class: 'grow small muted' });
    host.replaceChildren(
      el('div', { class: 'brand' }, logo(), el('h1', { text: 'Parley' }), button('menu', 'Hide the list', () => app.toggleSidebar())),
      el('div', { class: 'list-head' },
        button('plus', 'New conversation', () => app.openNew(), { text: true }),
        el('div', { class: 'searchbox' }, icon('search'), this.search)),
      this.list,
      el('div', { class: 'list-foot' }, this.status,
        button('people', 'Join a room', () => app.joinRoom()),
        button('upload', 'Import a conversation', () => app.importFile()),
        button('sun', 'Colours', (event) => app.themeMenu(event.currentTarget)),
        button('help', 'Help and shortcuts', () => app.help())));
  }

  draw() {
    const words = this.search.value.toLowerCase().split(/\s+/).filter(Boolean);
    const matches = (row) => words.every((word) => row.members.some((m) => nameOf(m).toLowerCase().includes(word) || m.conversation.startsWith(word) || m.model?.toLowerCase().includes(word)));
    this.#rows = familyRows(this.app.library.families).filter(matches);
    const { families, isLoaded } = this.app.library;
    this.status.textContent = !isLoaded ? 'Reading the list…' : families.size === 0 ? '' : families.size === 1 ? '1 conversation' : `${families.size.toLocaleString()} conversations`;
    this.#drawRows();
    if (this.#rows.length > 0) return;
    const hint = words.length > 0 ? 'Nothing has these words in its name.' : 'Conversations appear here. They stay on the server: close the tab, and come back.';
    this.#key = '';
    this.list.replaceChildren(el('li', { class: 'list-empty small', text: this.app.library.isLoaded ? hint : '' }), this.more);
  }

  /** Makes the rows anew if they show something else. The focus, and a menu that is open, stay where they are. */
  #drawRows() {
    const items = this.#items(0, this.#shown);
    const key = items.map((item) => `${item.className} ${item.dataset.root ?? ''} ${item.dataset.latest ?? ''} ${item.textContent}`).join('\n');
    if (key === this.#key) return;
    this.#key = key;
    const focused = this.list.contains(document.activeElement) ? document.activeElement.id : '';
    const top = this.list.scrollTop;
    this.list.replaceChildren(...items, this.more);
    this.list.scrollTop = top;
    if (focused !== '') document.getElementById(focused)?.focus();
  }

  #reset() {
    this.#shown = STEP;
    this.list.scrollTop = 0;
    this.draw();
  }

  #addRows() {
    if (this.#shown >= this.#rows.length) return;
    this.more.before(...this.#items(this.#shown, this.#shown + STEP));
    this.#shown += STEP;
    if (this.#shown < this.#rows.length) { // asks the observer again
      this.more.remove();
      this.list.append(this.more);
    }
  }

  /** @param {number} from @param {number} to */
  #items(from, to) {
    const group = (row) => (row === undefined ? null : row.root.metadata?.pinned ? 'Pinned' : dayGroup(row.at));
    return this.#rows.slice(from, to).flatMap((row, i) => {
      const mine = group(row);
      const item = this.#item(row);
      return mine === group(this.#rows[from + i - 1]) ? [item] : [el('li', { class: 'list-group', text: mine }), item];
    });
  }

  /** @param {FamilyRow} row */
  #item(row) {
    const { root, latest, members, at } = row;
    const isCurrent = members.some((m) => m.conversation === this.app.chat.id);
    const isBusy = members.some((m) => this.app.library.running.has(m.conversation) || m.state === 'CONVERSATION_STATE_BUSY');
    const isPinned = Boolean(root.metadata?.pinned);
    const more = button('more', `More about ${nameOf(root)}`, (event) => openMenu(event.currentTarget, [
      { label: 'Rename…', icon: 'edit', act: () => this.app.rename(root) },
      { label: isPinned ? 'Unpin' : 'Pin', icon: 'pin', act: () => this.app.pin(root, !isPinned) },
      null,
      { label: members.length > 1 ? `Delete all ${members.length} branches…` : 'Delete…', icon: 'trash', danger: true, act: () => this.app.remove(this.app.library.familyOf(root.conversation)) },
    ]), { attrs: { id: `more-${root.conversation}`, 'aria-haspopup': 'menu' } });
    return el('li', { class: `row${isCurrent ? ' is-current' : ''}${isPinned ? ' is-pinned' : ''}`, data: { root: root.conversation, latest: latest.conversation } },
      el('button', {
        type: 'button', class: 'row-open', id: `row-${root.conversation}`, 'aria-current': isCurrent ? 'page' : null,
        on: { click: () => this.app.open(isCurrent ? this.app.chat.id : latest.conversation) },
      }, el('span', { class: 'row-title', text: nameOf(root), dir: 'auto' }),
      el('span', { class: 'row-more' },
        isBusy && el('span', { class: 'dot busy' }), isBusy ? 'answering' : ago(at),
        members.length > 1 && el('span', { text: `${members.length} branches` }),
        this.app.library.models.length > 1 && el('span', { text: root.model ?? '' }))),
      more);
  }

  /** @param {KeyboardEvent} event */
  #walk(event) {
    const rows = [...this.list.querySelectorAll('.row-open')];
    const at = rows.indexOf(document.activeElement);
    const to = { ArrowDown: at + 1, ArrowUp: at - 1, Home: 0, End: rows.length - 1 }[event.key];
    if (at < 0 || to === undefined) return;
    if (to < 0) {
      event.preventDefault();
      this.search.focus();
    } else {
      this.#focusRow(Math.min(to, rows.length - 1), event);
    }
  }

  /** @param {number} index @param {Event} event */
  #focusRow(index, event) {
    event.preventDefault();
    this.list.querySelectorAll('.row-open')[index]?.focus();
  }
}
