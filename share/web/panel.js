// The panel beside a conversation: its branches, its settings, and the server.
import { el, button } from './dom.js';
import { BatchView } from './batch_view.js';
import { Settings } from './settings.js';
import { TreeView } from './tree_view.js';

const TABS = [['tree', 'Branches'], ['settings', 'Settings'], ['batch', 'Server']];

export class Panel {
  /** @type {'tree'|'settings'|'batch'|null} null: closed */
  tab = null;

  /** @param {HTMLElement} host @param {any} app */
  constructor(host, app) {
    this.host = host;
    this.app = app;
    this.views = { tree: new TreeView(app), settings: new Settings(app), batch: new BatchView(app) };
    this.tabs = TABS.map(([name, text]) => el('button', { type: 'button', role: 'tab', id: `tab-${name}`, 'aria-controls': 'panel-body', text,
      on: { click: () => this.show(name) } }));
    this.body = el('div', { class: 'panel-body', id: 'panel-body', role: 'tabpanel' });
    host.append(
      el('div', { class: 'tabs' }, el('div', { class: 'grow', role: 'tablist', 'aria-label': 'Details', on: { keydown: (event) => this.#walk(event) } }, ...this.tabs),
        button('close', 'Close the panel', () => this.show(null))),
      this.body);
  }

  /** @param {Panel['tab']} tab */
  show(tab) {
    if (tab !== 'batch') this.views.batch.stop();
    this.tab = tab;
    this.host.hidden = tab === null;
    TABS.forEach(([name], i) => {
      this.tabs[i].setAttribute('aria-selected', String(name === tab));
      this.tabs[i].setAttribute('tabindex', name === tab ? '0' : '-1');
    });
    if (tab !== null) {
      this.body.setAttribute('aria-labelledby', `tab-${tab}`);
      this.body.replaceChildren(this.views[tab].node);
    }
    if (tab === 'batch') this.views.batch.start();
    this.app.panelChanged();
  }

  /** @param {Panel['tab']} tab */
  toggle(tab) {
    this.show(this.tab === tab ? null : tab);
  }

  /** @param {import('./chat.js').Chat} chat */
  draw(chat) {
    if (this.tab === 'tree' || this.tab === 'settings') this.views[this.tab].draw(chat);
  }

  /** @param {KeyboardEvent} event */
  #walk(event) {
    const step = { ArrowRight: 1, ArrowLeft: -1 }[event.key];
    if (step === undefined) return;
    event.preventDefault();
    const at = (TABS.findIndex(([name]) => name === this.tab) + step + TABS.length) % TABS.length;
    this.show(TABS[at][0]);
    this.tabs[at].focus();
  }
}
