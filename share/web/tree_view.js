// The tree of branches as a picture to walk: a row a turn, a lane a branch. Only rows in view are drawn.
import { el, svg, button, icon } from './dom.js';
import { unary } from './connect.js';
import { Signal } from './signal.js';
import { askedOf } from './chat.js';
import { dividedReply } from './turn_view.js';

const ROW = 34; // pixels
const LANE = 20;
const LEFT = 26;
const START = { row: -1, lane: 0 }; // above the first turns
const OVERSCAN = 8; // rows drawn beyond the view
const LABEL_LENGTH = 120; // characters, of which as many are shown as fit
const LABEL_LEFT = 17; // of the spot
const LABEL_RIGHT = 14; // of the edge
const FETCHES = 4; // transcripts that are read at once

/** @param {string} text @param {number} length */
const shortened = (text, length) => (text.length > length ? `${text.slice(0, length - 1)}…` : text);

/** As much of the text as is at most so wide. @param {string} text @param {number} width pixels */
const fitted = (() => {
  const pen = document.createElement('canvas').getContext('2d');
  const isWider = (text, width) => pen.measureText(text).width > width;
  return (text, width) => {
    pen.font = `0.8125rem ${getComputedStyle(document.body).fontFamily}`;
    if (!isWider(text, width)) return text;
    let [fits, end] = [0, text.length];
    while (end - fits > 1) {
      const middle = (fits + end) >> 1;
      if (isWider(`${text.slice(0, middle)}…`, width)) end = middle;
      else fits = middle;
    }
    return `${text.slice(0, fits).trimEnd()}…`;
  };
})();

/** The children of an element, each made once as long as it stays in view. */
class Pool {
  #made = new Map();

  /** @param {Element} host */
  constructor(host) {
    this.host = host;
  }

  /** @param {any[]} wanted each with its key, in order @param {(one: any) => Element} make */
  show(wanted, make) {
    const keys = new Set(wanted.map((one) => one.key));
    for (const [key, node] of this.#made) {
      if (keys.has(key)) continue;
      node.remove();
      this.#made.delete(key);
    }
    let at = this.host.firstChild;
    for (const one of wanted) {
      const known = this.#made.get(one.key);
      if (known === at && known !== undefined) {
        at = at.nextSibling;
        continue;
      }
      const node = known ?? make(one);
      this.#made.set(one.key, node);
      this.host.insertBefore(node, at);
    }
  }
}

export class TreeView {
  #edges;
  #items;
  #rows = [];
  #byKey = new Map();
  #chat = null;
  #tree = null;
  #active = null; // the key of the node that the keyboard is at
  /** @type {Map<string, any>} turns by the key of their node */
  #texts = new Map();
  #wanted = new Set(); // conversations whose turns are to be read
  #asked = new Set(); // those of them that have been
  #fetching = 0;
  #onPath = new Set();
  #end = ''; // the key of the last node of the branch that is shown
  #width = 0;
  #isShown = false; // it has had a height, so that what is to be seen could come into view
  #redraw = new Signal();

  /** @param {any} app */
  constructor(app) {
    this.app = app;
    this.#redraw.on(() => { this.#drawRows(); this.#drawFoot(); });
    const [edges, items] = [svg('g', { role: 'presentation' }), svg('g', { role: 'presentation' })];
    this.#edges = new Pool(edges);
    this.#items = new Pool(items);
    this.svg = svg('svg', { role: 'tree', 'aria-label': 'Branches of this conversation', on: { keydown: (event) => this.#key(event) } }, edges, this.#start(), items);
    this.scroller = el('div', { class: 'tree', on: { scroll: () => this.#drawRows() } }, this.svg);
    this.foot = el('div', { class: 'tree-foot' });
    this.node = el('div', { class: 'panel-body' }, this.scroller, this.foot);
    new ResizeObserver(() => this.#drawRows()).observe(this.scroller);
  }

  /** @param {import('./chat.js').Chat} chat */
  draw(chat) {
    const isOther = chat !== this.#chat;
    this.#chat = chat;
    this.#tree = chat.id === null ? null : this.app.library.treeOf(chat.id);
    this.#rows = this.#tree?.rows() ?? [];
    this.#byKey = new Map(this.#rows.map((row) => [row.node.key, row]));
    const path = this.#tree?.path(chat.id) ?? [];
    this.#onPath = new Set(path.map((node) => node.key));
    this.#end = path.at(-1)?.key ?? '';
    for (const node of path) if (chat.turns[node.turn - 1]) this.#texts.set(node.key, chat.turns[node.turn - 1]);
    if (this.#rows.length === 0) {
      this.node.replaceChildren(el('div', { class: 'panel-empty' }, icon('tree'), el('p', { text: 'Each turn becomes a node here. Edit a message, or ask for another reply, and the tree branches.' })));
      return;
    }
    if (!this.node.contains(this.scroller)) this.node.replaceChildren(this.scroller, this.foot);
    const isLost = isOther || !this.#byKey.has(this.#active);
    if (isLost) this.#active = path.at(-1)?.key ?? this.#rows[0].node.key;
    const lanes = 1 + Math.max(...this.#rows.map((row) => row.lane));
    this.#width = Math.max(this.scroller.clientWidth || 360, LEFT + lanes * LANE + 190);
    this.svg.setAttribute('width', String(this.#width));
    this.svg.setAttribute('height', String((this.#rows.length + 1) * ROW));
    this.#drawFoot(); // it takes of the height
    if (isLost || !this.#isShown) this.#reveal(this.#active);
    this.#isShown = this.scroller.clientHeight > 0;
    this.#drawRows();
  }

  /** @param {{row: number, lane: number}} at */
  #spot({ row, lane }) {
    return [LEFT + lane * LANE, (row + 1) * ROW + ROW / 2];
  }

  #drawRows() {
    if (this.#rows.length === 0) return;
    const { scrollTop, clientHeight } = this.scroller;
    const from = Math.max(0, Math.floor(scrollTop / ROW) - 1 - OVERSCAN);
    const to = Math.min(this.#rows.length, Math.ceil((scrollTop + clientHeight) / ROW) + OVERSCAN);
    const hadFocus = this.svg.contains(document.activeElement);
    const edges = [];
    for (const row of this.#rows) { // an edge may pass through the view though both its ends are outside
      const above = row.node.parent ? this.#byKey.get(row.node.parent.key) : START;
      if (row.row >= from && above.row < to) edges.push(this.#edge(above, row));
    }
    edges.sort((a, b) => Number(a.isOn) - Number(b.isOn)); // the path of this branch above the others
    this.#edges.show(edges, (edge) => svg('path', { class: `edge${edge.isOn ? ' on' : ''}`, d: edge.d }));
    this.#items.show(this.#rows.slice(from, to).map((row) => this.#item(row)), (item) => this.#node(item));
    // A row whose text has come is drawn anew.
    if (hadFocus && !this.svg.contains(document.activeElement)) this.svg.querySelector('[tabindex="0"]')?.focus({ preventScroll: true });
  }

  /** @param {any} above @param {any} row */
  #edge(above, row) {
    const [x1, y1] = this.#spot(above);
    const [x2, y2] = this.#spot(row);
    const isOn = this.#onPath.has(row.node.key) && (above === START || this.#onPath.has(above.node.key));
    // Down in the lane of the node above, where no other node is, and over in the row of the node itself.
    const d = x1 === x2 ? `M${x1} ${y1}V${y2}` : `M${x1} ${y1}V${y2 - ROW / 2}Q${x1} ${y2} ${x2} ${y2}`;
    return { key: `${d}${isOn}`, d, isOn };
  }

  #start() {
    const [x, y] = this.#spot(START);
    return svg('g', { class: 'start', 'aria-hidden': 'true' }, svg('circle', { cx: x, cy: y, r: 4 }), svg('text', { x: x + LABEL_LEFT, y: y + 4.5, text: 'Start' }));
  }

  /** What is to be seen of a row; the same key, the same picture. @param {any} row */
  #item(row) {
    const { node } = row;
    const asked = askedOf(this.#textOf(node)?.messages)?.trim().replace(/\s+/g, ' ') ?? '';
    const siblings = this.#tree.siblings(node);
    const item = {
      node, spot: this.#spot(row), asked, version: siblings.indexOf(node) + 1, versions: siblings.length, isTip: node.isTip,
      isCurrent: node.key === this.#end, isOn: this.#onPath.has(node.key), isBusy: this.#tree.running.get(node.owner) === node.turn,
      width: this.#width,
    };
    const { node: _, ...seen } = item;
    return { ...item, key: node.key + JSON.stringify(seen) };
  }

  #node({ node, spot: [x, y], asked, version, versions, isTip, isCurrent, isOn, isBusy, width }) {
    const classes = ['node', isOn && 'on', isCurrent && 'at', isBusy && 'busy'].filter(Boolean).join(' ');
    return svg('g', {
      class: classes, role: 'treeitem', tabindex: node.key === this.#active ? '0' : '-1', data: { key: node.key },
      'aria-level': String(node.turn), 'aria-setsize': String(versions), 'aria-posinset': String(version), 'aria-selected': String(isCurrent),
      'aria-label': `Turn ${node.turn}${versions > 1 ? `, version ${version} of ${versions}` : ''}: ${shortened(asked, 120) || 'no text yet'}`,
      on: { click: () => this.#choose(node, true), focus: () => this.#choose(node, false) },
    }, svg('rect', { class: 'back', x: 3, y: y - ROW / 2 + 1, width: Math.max(0, width - 6), height: ROW - 2, rx: 8 }),
    svg('circle', { class: 'halo', cx: x, cy: y, r: 11 }),
    svg('circle', { class: 'spot', cx: x, cy: y, r: isTip ? 6 : 5 }),
    svg('text', { x: x + LABEL_LEFT, y: y + 4.5, text: fitted(asked.slice(0, LABEL_LENGTH) || `Turn ${node.turn}`, width - x - LABEL_LEFT - LABEL_RIGHT) }));
  }

  /** What was said at a node; asks for it if it is not known. */
  #textOf(node) {
    const turn = this.#texts.get(node.key);
    if (turn === undefined && !this.#wanted.has(node.owner)) {
      this.#wanted.add(node.owner);
      this.#fetch();
    }
    return turn;
  }

  /** Reads turns of conversations that are in view. */
  async #fetch() {
    if (this.#fetching >= FETCHES) return;
    const owner = [...this.#wanted].find((id) => !this.#asked.has(id));
    if (owner === undefined) return;
    this.#asked.add(owner);
    this.#fetching++;
    try {
      const { transcript = [] } = await unary('Conversations/Get', { conversation: owner, pageSize: 1000 });
      for (const turn of transcript) this.#texts.set(`${owner}/${turn.turn}`, turn);
    } catch { /* closed meanwhile: its nodes go with the next list */ }
    this.#fetching--;
    this.#redraw.emit();
    this.#fetch();
  }

  /** @param {any} node @param {boolean} isChosen whether it is to be shown, not just looked at */
  #choose(node, isChosen) {
    if (this.#active !== node.key) {
      this.#active = node.key;
      for (const item of this.svg.querySelectorAll('.node')) item.setAttribute('tabindex', item.dataset.key === node.key ? '0' : '-1');
    }
    this.#drawFoot();
    if (isChosen) this.app.goToNode(node);
  }

  #drawFoot() {
    const node = this.#byKey.get(this.#active)?.node;
    if (node === undefined) return;
    const turn = this.#textOf(node);
    const reply = dividedReply(turn?.reply ?? '').text.trim().replace(/\s+/g, ' ');
    const isHere = this.#onPath.has(node.key);
    this.foot.replaceChildren(
      el('p', { class: 'small muted', text: `Turn ${node.turn}${node.isTip ? ', end of a branch' : ''}` }),
      el('p', { class: 'quote', dir: 'auto', text: shortened(reply, 260) || 'No reply yet.' }),
      el('div', { class: 'acts' },
        button('right', 'Show', () => this.app.goToNode(node), { text: true }),
        button('fork', 'Branch', () => this.app.forkNode(node), { text: true }),
        button('compare', 'Compare', () => this.app.compareNode(node), { text: true, attrs: { disabled: isHere } })));
  }

  /** @param {string} key */
  #reveal(key) {
    const row = this.#byKey.get(key)?.row ?? 0;
    const { scrollTop, clientHeight } = this.scroller;
    const y = (row + 1) * ROW;
    if (y < scrollTop || y + 2 * ROW > scrollTop + clientHeight) this.scroller.scrollTop = Math.max(0, y - clientHeight / 2);
  }

  /** @param {KeyboardEvent} event */
  #key(event) {
    const row = this.#byKey.get(this.#active);
    if (row === undefined) return;
    const { node } = row;
    const last = this.#rows.length - 1;
    const targets = {
      ArrowDown: () => this.#rows[Math.min(last, row.row + 1)].node, ArrowUp: () => this.#rows[Math.max(0, row.row - 1)].node,
      ArrowLeft: () => node.parent ?? node, ArrowRight: () => node.children[0] ?? node,
      Home: () => this.#rows[0].node, End: () => this.#rows[last].node,
    };
    if (event.key === 'Enter' || event.key === ' ') {
      event.preventDefault();
      this.app.goToNode(node);
    } else if (event.key in targets) {
      event.preventDefault();
      const { key } = targets[event.key]();
      this.#reveal(key);
      this.#drawRows();
      this.svg.querySelector(`[data-key="${CSS.escape(key)}"]`)?.focus({ preventScroll: true });
    }
  }
}
