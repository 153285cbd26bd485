// The page as a whole: which conversation is shown, and what the parts of the page ask for.
import { el, button, icon } from './dom.js';
import { dotOf } from './batch_view.js';
import { Chat } from './chat.js';
import { showCompared } from './compare.js';
import { Composer } from './composer.js';
import { unary } from './connect.js';
import { askForKey, hasKey } from './key.js';
import { Library } from './library.js';
import { kept } from './memory.js';
import { asked, complain, confirmed, copyText, notify, openDialog, openMenu } from './overlays.js';
import { Panel } from './panel.js';
import { RoomView } from './room_view.js';
import { nameOf, Sidebar } from './sidebar.js';
import { Thread } from './thread.js';
import { EXPORTS, importFile, parsedFile, saveFile } from './transfer.js';

const NARROW = matchMedia('(max-width: 820px)');
const MIDDLE = matchMedia('(max-width: 1120px)');
const LOOK_MS = 3000; // at a conversation that another tab may have gone on with

const SHORTCUTS = [
  ['Ctrl K', 'Search conversations'], ['Ctrl Shift O', 'New conversation'], ['Ctrl B', 'Show or hide the list'],
  ['Ctrl .', 'Show or hide the branches'], ['/', 'Write a message'], ['Esc', 'Stop the reply, or leave the field'],
  ['[  ]', 'Previous and next version of the last turn that has several'], ['Enter', 'Send'], ['Shift Enter', 'A new line'], ['?', 'This list'],
];

export class App {
  library = new Library();
  /** @type {Map<string, Chat>} those that were shown */
  #chats = new Map();
  #pointed = null; // a turn to show once it is there
  #covering = null; // what lies over a narrow window
  /** @type {RoomView|null} in place of a conversation */
  #room = null;

  constructor() {
    this.root = document.getElementById('app');
    this.sidebar = new Sidebar(document.getElementById('sidebar'), this);
    this.thread = new Thread(this);
    this.composer = new Composer(this);
    this.chat = this.#newChat(null);
    this.title = el('button', { type: 'button', dir: 'auto', on: { click: () => this.#renameShown() } });
    this.model = el('button', { type: 'button', class: 'model-button', 'aria-haspopup': 'menu', on: { click: () => this.#modelMenu() } });
    this.menuButton = button('menu', 'Show the list', () => this.toggleSidebar(), { class: 'ghost open-list' });
    this.treeButton = button('tree', 'Branches (Ctrl .)', () => this.panel.toggle('tree'), { attrs: { 'aria-pressed': 'false' } });
    this.settingsButton = button('sliders', 'Settings', () => this.panel.toggle('settings'), { class: 'ghost for-wide', attrs: { 'aria-pressed': 'false' } });
    this.newButton = button('plus', 'New conversation', () => this.openNew(), { class: 'ghost for-narrow' });
    this.moreButton = button('more', 'More', () => this.#moreMenu(), { attrs: { 'aria-haspopup': 'menu' } });
    document.getElementById('main').replaceChildren(
      el('header', { class: 'head' }, this.menuButton, this.model, el('h2', { class: 'title' }, this.title), this.treeButton, this.settingsButton, this.newButton, this.moreButton),
      this.thread.node,
      el('div', { class: 'dock' }, this.thread.toEnd, this.composer.node,
        el('p', { class: 'fine', text: 'Replies may be wrong. Check what matters.' })));
    this.root.append(el('div', { class: 'scrim', on: { click: () => this.toggleSidebar(false) } }));
    this.panel = new Panel(document.getElementById('panel'), this);
    this.#setTheme(kept.get('theme', 'system'));
    if (!NARROW.matches && kept.get('sidebar', true) === false) this.root.classList.add('no-sidebar');
    this.panel.show(MIDDLE.matches ? null : kept.get('panel'));
    this.library.changed.on(() => this.draw());
    NARROW.addEventListener('change', () => this.#cover());
    addEventListener('hashchange', () => this.#route());
    addEventListener('keydown', (event) => this.#key(event));
    addEventListener('storage', (event) => event.key === `parley.pending.${this.chat.id}` && this.#look());
    setInterval(() => this.#look(), LOOK_MS);
  }

  /** Reads what is there, after asking for a key where the server wants one. */
  async start() {
    this.draw();
    try {
      await this.library.refresh();
    } catch (error) {
      if (error.code === 'unauthenticated') await askForKey(() => this.library.refresh());
      else complain(error);
    }
    await this.#route();
    this.library.complete().catch(complain);
    this.library.poll((error) => (error.code === 'unauthenticated' ? this.#askAgain() : this.#setReachable(false)), () => this.#setReachable(true));
    if (!NARROW.matches && this.#room === null) this.composer.focus();
    this.root.removeAttribute('aria-busy');
  }

  /** The key is not admitted any more. */
  async #askAgain() {
    if (document.querySelector('#key')) return; // it is being asked for
    await askForKey(() => this.library.refresh());
    this.#look();
  }

  /** Another key is another person, whose conversations are others. */
  async changeKey() {
    if (!await askForKey(() => this.library.refresh(), 'Use another key')) return;
    history.replaceState(null, '', location.pathname);
    location.reload();
  }

  // --- drawing ---

  draw() {
    const { chat } = this;
    const shown = this.library.all.get(chat.id) ?? chat.conversation;
    const name = shown ? nameOf(this.#rootOf(shown)) : chat.error?.isPassing ? 'Waiting' : chat.error ? 'Not here' : 'New conversation';
    if (this.#room === null) document.title = shown ? `${name} · Parley` : 'Parley';
    this.title.textContent = name;
    this.title.disabled = !shown;
    this.root.classList.toggle('is-new', chat.id === null);
    this.#drawModel();
    this.drawThread();
    this.composer.draw(chat);
    this.panel.draw(chat);
    this.sidebar.draw();
  }

  drawThread() {
    this.thread.draw(this.chat);
    if (this.#pointed === null || this.chat.turns.length === 0) return;
    this.thread.scrollToTurn(this.#pointed);
    this.#pointed = null;
  }

  #drawModel() {
    const model = this.library.model(this.chat.modelName);
    const name = this.chat.modelName || model?.name || 'No model';
    const canChoose = this.chat.id === null;
    this.model.replaceChildren(el('span', { class: `dot ${model ? dotOf(model) : ''}` }), el('span', { text: name }), ...(canChoose ? [icon('down')] : []));
    this.model.disabled = !canChoose;
    this.model.title = canChoose ? 'Choose a model' : `${name}: a conversation keeps its model`;
  }

  panelChanged() {
    const { tab } = this.panel;
    kept.set('panel', tab);
    this.treeButton.setAttribute('aria-pressed', String(tab === 'tree'));
    this.settingsButton.setAttribute('aria-pressed', String(tab === 'settings'));
    if (this.chat) this.panel.draw(this.chat);
    this.#cover();
  }

  /** What lies over the rest of a narrow window has the keyboard, and what it covers has not; so the focus comes, and goes back. */
  #cover() {
    const isDrawer = NARROW.matches && this.root.classList.contains('drawer');
    const isPanel = NARROW.matches && this.panel.tab !== null;
    const main = document.getElementById('main');
    const covers = isDrawer ? this.sidebar.host : isPanel ? this.panel.host : null;
    if (covers === this.#covering) return;
    const was = this.#covering;
    this.#covering = covers;
    main.inert = covers !== null;
    this.panel.host.inert = isDrawer;
    if (covers !== null) covers.querySelector('[role=tab][aria-selected=true], .brand button').focus();
    else if (was === this.sidebar.host) this.menuButton.focus();
    else (this.treeButton.checkVisibility() ? this.treeButton : this.moreButton).focus();
  }

  /** @param {boolean} isReachable */
  #setReachable(isReachable) {
    if (this.root.classList.contains('is-away') === !isReachable) return;
    this.root.classList.toggle('is-away', !isReachable);
    notify(isReachable ? 'The server is back.' : 'The server does not answer. Waiting for it.');
  }

  // --- which conversation ---

  /** @param {string|null} id */
  #newChat(id) {
    return this.#adopt(new Chat(this.library, id));
  }

  /** Draws what changes in a chat while it is shown. @param {Chat} chat */
  #adopt(chat) {
    if (chat.id !== null) this.#chats.set(chat.id, chat);
    chat.changed.on(() => {
      if (chat.id !== null) this.#chats.set(chat.id, chat);
      if (chat !== this.chat) return;
      this.#takeBack(chat);
      this.#drawModel();
      this.drawThread();
      this.composer.draw(chat);
      this.panel.draw(chat);
    });
    return chat;
  }

  /** A message whose place another tab has taken is written again. @param {Chat} chat */
  #takeBack(chat) {
    if (chat.rejected === null) return;
    this.composer.draw(chat);
    this.composer.suggest(chat.rejected);
    chat.rejected = null;
    notify('Another message came first. Yours is back in the field.');
  }

  /** Shows a room in place of a conversation, or none. @param {string|null} name */
  #showRoom(name) {
    if (this.#room?.name === name) return;
    this.#room?.close();
    this.root.classList.toggle('is-in-room', name !== null); // what is not shown takes no focus
    this.#room = name === null ? null : new RoomView(document.getElementById('main'), this, name);
    document.title = name === null ? 'Parley' : `${name} · Parley`;
  }

  async joinRoom() {
    const name = await asked({ title: 'Join a room', label: 'Room', value: '' });
    if (name) location.hash = `#/r/${encodeURIComponent(name)}`;
  }

  async #route() {
    const room = /^#\/r\/([^/]+)$/.exec(location.hash)?.[1] ?? null;
    this.#showRoom(room === null ? null : decodeURIComponent(room));
    if (room !== null) {
      this.toggleSidebar(false);
      return;
    }
    const id = /^#\/c\/([\w.-]+)$/.exec(location.hash)?.[1] ?? null;
    if (id === this.chat.id && (id !== null || this.chat.conversation === null)) return;
    this.#show(id === null ? this.#newChat(null) : this.#chats.get(id) ?? this.#newChat(id));
    if (id === null) return;
    const { chat } = this;
    await this.#load(chat);
    this.draw();
  }

  /** @param {Chat} chat */
  async #load(chat) {
    try {
      await chat.load();
    } catch (error) {
      chat.error = error;
      this.#chats.delete(chat.id);
    }
  }

  /** @param {Chat} chat */
  #show(chat) {
    this.chat = chat;
    this.#showRoom(null);
    const hash = chat.id === null ? '' : `#/c/${chat.id}`;
    if (location.hash !== hash) history.pushState(null, '', hash || location.pathname);
    this.draw();
  }

  /** @param {string} id */
  open(id) {
    location.hash = `#/c/${id}`;
    this.toggleSidebar(false);
  }

  /** @param {{system?: string, model?: string}} [draft] */
  openNew(draft = {}) {
    const chat = this.#newChat(null);
    Object.assign(chat.draft, draft);
    this.toggleSidebar(false);
    this.#show(chat);
    this.composer.focus();
  }

  /** Another tab may have gone on with what is shown. */
  #look() {
    const { chat } = this;
    if (document.hidden || chat.id === null || chat.isBusy || this.#room !== null) return;
    if (chat.error) {
      if (chat.error.isPassing) this.#load(chat).then(() => this.draw());
      return;
    }
    unary('Conversations/Get', { conversation: chat.id, withoutTranscript: true }).then((now) => {
      const isNews = now.turns !== chat.conversation?.turns || now.generation !== chat.conversation?.generation || now.state === 'CONVERSATION_STATE_BUSY';
      if (isNews && !chat.isBusy) return chat.load();
      return undefined;
    }).catch(() => {}); // the poll says when the server is away
  }

  /** @param {any} conversation */
  #rootOf(conversation) {
    const family = this.library.familyOf(conversation.conversation);
    return family.find((m) => !family.some((other) => other.conversation === m.parent)) ?? conversation;
  }

  // --- turns ---

  /** @param {any[]} messages */
  async send(messages) {
    const { chat } = this;
    const wasNew = chat.id === null;
    const sent = chat.send(messages);
    this.thread.scrollToEnd();
    await sent;
    if (wasNew && this.chat === chat) this.#show(chat);
  }

  resend() {
    const { request } = this.chat.run;
    this.chat.run = null;
    this.send(request.messages).catch(complain);
  }

  /** Shows a fork once it is made. @param {Promise<Chat>} made */
  async #showFork(made) {
    try {
      this.#show(this.#adopt(await made));
      this.composer.focus();
    } catch (error) {
      complain(error);
    }
  }

  /** @param {number} turn */
  regenerate(turn) {
    return this.#showFork(this.chat.regenerate(turn));
  }

  /** @param {number} turn @param {string} text */
  edit(turn, text) {
    return this.#showFork(this.chat.edit(turn, text));
  }

  /** @param {number} turn */
  fork(turn) {
    return this.#showFork(this.chat.fork(turn));
  }

  /** @param {string} text */
  suggest(text) {
    this.composer.suggest(text);
  }

  // --- branches ---

  /** @param {number} turn @param {number} step */
  toSibling(turn, step) {
    const tree = this.library.treeOf(this.chat.id);
    const node = tree.path(this.chat.id)[turn - 1];
    const siblings = node ? tree.siblings(node) : [];
    const to = siblings[siblings.indexOf(node) + step];
    if (to) this.goToNode(to);
  }

  /** @param {import('./families.js').TreeNode} node */
  goToNode(node) {
    const id = this.library.treeOf(this.chat.id).through(node, this.chat.id);
    this.#pointed = node.turn;
    if (MIDDLE.matches) this.panel.show(null);
    if (id === this.chat.id) this.drawThread();
    else this.open(id);
  }

  /** @param {import('./families.js').TreeNode} node */
  async forkNode(node) {
    const id = this.library.treeOf(this.chat.id).through(node, this.chat.id);
    try {
      await this.#showFork((await this.#loaded(id)).fork(node.turn));
    } catch (error) {
      complain(error);
    }
  }

  /** @param {import('./families.js').TreeNode} node */
  async compareNode(node) {
    try {
      const other = await this.#loaded(node.owner);
      showCompared({ name: 'This branch', turns: this.chat.turns }, { name: 'The other branch', turns: other.turns });
    } catch (error) {
      complain(error);
    }
  }

  /** @param {string} id */
  async #loaded(id) {
    const chat = this.#chats.get(id) ?? this.#newChat(id);
    if (chat.conversation === null) await chat.load();
    return chat;
  }

  /** The last turn that has several versions, one further. @param {number} step */
  #stepVersion(step) {
    const tree = this.library.treeOf(this.chat.id);
    const node = tree.path(this.chat.id).findLast((one) => tree.siblings(one).length > 1);
    if (node) this.toSibling(node.turn, step);
  }

  // --- names, pins, files ---

  #renameShown() {
    const shown = this.library.all.get(this.chat.id);
    if (shown) this.rename(this.#rootOf(shown));
  }

  /** @param {any} root */
  async rename(root) {
    const title = await asked({ title: 'Rename', label: 'Name', value: root.metadata?.title ?? '' });
    if (title) await this.library.describe(root.conversation, { title }).catch(complain);
  }

  /** @param {any} root @param {boolean} isPinned */
  pin(root, isPinned) {
    return this.library.describe(root.conversation, { pinned: isPinned ? '1' : undefined }).catch(complain);
  }

  /** @param {any[]} members */
  async remove(members) {
    const isAll = members.length > 1;
    const yes = await confirmed({ title: isAll ? `Delete ${members.length} branches?` : 'Delete this conversation?', danger: true, yes: 'Delete',
      text: 'The server forgets them for good.' });
    if (!yes) return;
    if (members.some((m) => m.conversation === this.chat.id)) this.openNew(); // nothing asks for what is gone
    try {
      for (const { conversation } of members) await (this.#chats.get(conversation) ?? new Chat(this.library, conversation)).close();
    } catch (error) {
      complain(error);
    }
    for (const { conversation } of members) this.#chats.delete(conversation);
  }

  importFile() {
    const input = el('input', { type: 'file', accept: '.json,application/json' });
    input.addEventListener('change', async () => {
      try {
        this.open(await importFile(parsedFile(await input.files[0].text()), this.library));
        await this.library.refresh();
        notify('Imported.');
      } catch (error) {
        complain(error);
      }
    });
    input.click();
  }

  // --- menus ---

  async #modelMenu() {
    await this.library.refreshModels().catch(() => {}); // the poll says when the server is away
    openMenu(this.model, this.library.models.map((model) => ({
      label: model.name,
      sub: [model.architecture, model.context && `${model.context.toLocaleString()} tokens of context`, { MODEL_STATE_UNLOADED: model.error ? `not loaded: ${model.error}` : 'not loaded', MODEL_STATE_LOADING: 'loading', MODEL_STATE_UNLOADING: 'unloading', MODEL_STATE_FAILED: model.error }[model.state]].filter(Boolean).join(' · '),
      dot: dotOf(model) || 'off',
      checked: model.name === (this.chat.modelName || this.library.model('')?.name),
      act: () => this.#choose(model),
    })));
  }

  /** @param {any} model */
  async #choose(model) {
    this.chat.draft.model = model.name;
    this.draw();
    if (model.state !== 'MODEL_STATE_UNLOADED') return;
    notify(`${model.name} is being loaded.`);
    const load = unary('Models/Load', { name: model.name });
    await this.library.refresh().catch(complain); // shows that it loads
    await load.catch((error) => {
      if (error.code !== 'permission_denied' && error.code !== 'unimplemented') complain(error); // then the first message loads it
    });
    await this.library.refreshModels().catch(complain);
  }

  #moreMenu() {
    const { chat } = this;
    const shown = this.library.all.get(chat.id);
    const family = chat.id === null ? [] : this.library.familyOf(chat.id);
    const name = shown ? nameOf(this.#rootOf(shown)) : 'conversation';
    const isPinned = shown !== undefined && Boolean(this.#rootOf(shown).metadata?.pinned);
    openMenu(this.moreButton, [
      ...(shown ? [
        { label: 'Rename…', icon: 'edit', act: () => this.#renameShown() },
        { label: isPinned ? 'Unpin' : 'Pin', icon: 'pin', act: () => this.pin(this.#rootOf(shown), !isPinned) },
        null,
      ] : []),
      { label: 'Settings', icon: 'sliders', act: () => this.panel.show('settings') },
      { label: 'The server at work', icon: 'pulse', act: () => this.panel.show('batch') },
      { label: 'Import…', icon: 'upload', act: () => this.importFile() },
      { label: 'Help and shortcuts', icon: 'help', act: () => this.help() },
      ...(hasKey() ? [{ label: 'Use another key…', icon: 'key', act: () => this.changeKey() }] : []),
      ...(!shown ? [] : [
        null,
        ...Object.entries(EXPORTS).map(([label, { ending, type, write }]) => ({ label, icon: 'download', act: () => saveFile(`${name}.${ending}`, type, write(chat, name)) })),
        { label: 'Copy the id', sub: chat.id, icon: 'copy', act: () => copyText(chat.id, 'The id is copied') },
        null,
        { label: 'Delete this branch…', icon: 'trash', danger: true, act: () => this.remove([shown]) },
        ...(family.length > 1 ? [{ label: `Delete all ${family.length} branches…`, icon: 'trash', danger: true, act: () => this.remove(family) }] : []),
      ]),
    ]);
  }

  /** @param {HTMLElement} anchor */
  themeMenu(anchor) {
    const now = kept.get('theme', 'system');
    openMenu(anchor, [['system', 'As the system'], ['light', 'Light'], ['dark', 'Dark']].map(([theme, label]) => ({
      label, checked: theme === now, act: () => this.#setTheme(theme) })));
  }

  /** @param {string} theme */
  #setTheme(theme) {
    kept.set('theme', theme === 'system' ? null : theme);
    if (theme === 'system') delete document.documentElement.dataset.theme;
    else document.documentElement.dataset.theme = theme;
  }

  help() {
    const dialog = openDialog('Help', '', el('div', { class: 'stack' },
      el('div', { class: 'dialog-head' }, el('h2', { class: 'grow', text: 'Keys' }), button('close', 'Close', () => dialog.close())),
      el('dl', { class: 'shortcuts' }, ...SHORTCUTS.flatMap(([keys, what]) => [
        el('dt', {}, ...keys.split(' ').filter(Boolean).flatMap((key, i) => [i > 0 && ' ', el('kbd', { text: key })]).filter(Boolean)), el('dd', { text: what })])),
      el('p', { class: 'muted', text: 'Conversations are the server’s: a reply goes on while this page is closed, and another browser finds it. An edited message and another reply are branches; the one before stays.' }),
      el('p', { class: 'small' }, el('a', { href: '/web/licences.txt', target: '_blank', rel: 'noopener', text: 'Licences' }))));
  }

  // --- keys ---

  /** @param {boolean} [isShown] */
  toggleSidebar(isShown) {
    if (NARROW.matches) {
      this.root.classList.toggle('drawer', isShown);
      this.#cover();
    } else if (isShown === undefined) {
      kept.set('sidebar', !this.root.classList.toggle('no-sidebar') || false);
    }
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    if (document.querySelector('dialog[open]') || event.isComposing) return;
    const isTyping = event.target instanceof Element && event.target.closest('input, textarea, select') !== null;
    const command = event.ctrlKey || event.metaKey;
    const act = command ? this.#commands[`${event.shiftKey ? 'shift+' : ''}${event.key.toLowerCase()}`]
      : event.key === 'Escape' ? this.#escape : isTyping || event.altKey ? undefined : this.#letters[event.key];
    if (act === undefined || act() === false) return;
    event.preventDefault();
  }

  #escape = () => {
    if (document.querySelector('[popover]:popover-open')) return false;
    if (this.root.classList.contains('drawer')) this.toggleSidebar(false);
    else if (this.chat.isBusy) this.chat.stop()?.catch(complain);
    else if (MIDDLE.matches && this.panel.tab !== null) this.panel.show(null);
    else if (this.composer.hasFocus) this.composer.leave();
    else return false;
    return true;
  };

  #commands = {
    k: () => {
      this.root.classList.remove('no-sidebar');
      if (NARROW.matches) this.toggleSidebar(true);
      this.sidebar.search.focus();
      this.sidebar.search.select();
    },
    'shift+o': () => this.openNew(),
    b: () => this.toggleSidebar(),
    '.': () => this.panel.toggle('tree'),
  };

  #letters = {
    '/': () => {
      if (NARROW.matches) {
        this.toggleSidebar(false);
        this.panel.show(null);
      }
      this.composer.focus();
    },
    '?': () => this.help(),
    '[': () => this.#stepVersion(-1),
    ']': () => this.#stepVersion(1),
  };
}
