// Elements, without markup from text: what comes from a model or a server only ever becomes text nodes and attributes.

const SVG = 'http://www.w3.org/2000/svg';

/**
 * Gives an element properties: 'class', 'text', 'on' (handlers by event), 'data' (data-* by name), any attribute; false, null and
 * undefined leave an attribute out.
 * @param {Element} node
 * @param {Record<string, any>} props
 */
function assign(node, props) {
  for (const [name, value] of Object.entries(props)) {
    if (value === false || value === null || value === undefined) continue;
    if (name === 'text') node.textContent = value;
    else if (name === 'on') for (const [event, handler] of Object.entries(value)) node.addEventListener(event, handler);
    else if (name === 'data') for (const [key, datum] of Object.entries(value)) node.setAttribute(`data-${key}`, datum);
    else if (name === 'value') node.value = value;
    else node.setAttribute(name, value === true ? '' : value);
  }
}

/**
 * @param {string} tag
 * @param {Record<string, any>} [props]
 * @param {...(Node|string|null|undefined|false)} children
 * @returns {any}
 */
export function el(tag, props = {}, ...children) {
  const node = document.createElement(tag);
  assign(node, props);
  node.append(...children.filter((c) => c !== null && c !== undefined && c !== false));
  return node;
}

/** The same in SVG. @param {string} tag @param {Record<string, any>} [props] @param {...Node} children @returns {any} */
export function svg(tag, props = {}, ...children) {
  const node = document.createElementNS(SVG, tag);
  assign(node, props);
  node.append(...children);
  return node;
}

// One stroke each, in a square of 24.
const ICONS = {
  menu: 'M4 7h16M4 12h16M4 17h16',
  plus: 'M12 5v14M5 12h14',
  search: 'M11 18a7 7 0 1 0 0-14 7 7 0 0 0 0 14zM20 20l-4-4',
  tree: 'M7 8.5v7M7 11c0 3 10 1 10 4.5M7 8.5a2.25 2.25 0 1 0 0-4.5 2.25 2.25 0 0 0 0 4.5zM7 20a2.25 2.25 0 1 0 0-4.5 2.25 2.25 0 0 0 0 4.5zM17 20a2.25 2.25 0 1 0 0-4.5 2.25 2.25 0 0 0 0 4.5z',
  sliders: 'M4 8h9M17 8h3M4 16h3M11 16h9M15 6v4M9 14v4',
  pulse: 'M3 12h4l3-7 4 14 3-7h4',
  send: 'M12 19V5M6 11l6-6 6 6',
  stop: 'M8 8h8v8H8z',
  clip: 'M20 11l-8.5 8.5a5 5 0 0 1-7-7L13 4a3.3 3.3 0 0 1 4.7 4.7L9.2 17.2a1.7 1.7 0 0 1-2.4-2.4L14 7.5',
  copy: 'M9 9h10v10H9zM5 15V5h10',
  check: 'M5 13l4 4L19 7',
  retry: 'M4 12a8 8 0 0 1 14-5l2 2M20 4v5h-5M20 12a8 8 0 0 1-14 5l-2-2M4 20v-5h5',
  edit: 'M4 20h4L19 9l-4-4L4 16zM13 7l4 4',
  left: 'M14 6l-6 6 6 6',
  right: 'M10 6l6 6-6 6',
  down: 'M6 9l6 6 6-6',
  fork: 'M7 4v16M7 12c6 0 10-1 10-8',
  compare: 'M5 5h5v14H5zM14 5h5v14h-5z',
  pin: 'M9 4h6l-1 6 3 3H7l3-3zM12 13v7',
  trash: 'M5 7h14M10 7V4h4v3M7 7l1 13h8l1-13',
  more: 'M5 11.2a.8.8 0 1 0 0 1.6.8.8 0 0 0 0-1.6zM12 11.2a.8.8 0 1 0 0 1.6.8.8 0 0 0 0-1.6zM19 11.2a.8.8 0 1 0 0 1.6.8.8 0 0 0 0-1.6z',
  close: 'M6 6l12 12M18 6L6 18',
  tool: 'M14 6a4 4 0 0 0-5 5l-5 5 3 3 5-5a4 4 0 0 0 5-5l-2.5 2.5-2-2z',
  download: 'M12 4v11M7 11l5 5 5-5M5 20h14',
  upload: 'M12 16V5M7 9l5-5 5 5M5 20h14',
  help: 'M9 9a3 3 0 1 1 4 3c-1 .5-1 1-1 2M12 18v.01',
  sun: 'M12 8a4 4 0 1 0 0 8 4 4 0 0 0 0-8zM12 2v2M12 20v2M2 12h2M20 12h2M5 5l1.4 1.4M17.6 17.6L19 19M19 5l-1.4 1.4M6.4 17.6L5 19',
  people: 'M9 11a3.2 3.2 0 1 0 0-6.4 3.2 3.2 0 0 0 0 6.4zM3 20a6 6 0 0 1 12 0M16 5a3.2 3.2 0 0 1 0 6M18 14.5a6 6 0 0 1 3 5.5',
  key: 'M14 10a4 4 0 1 1-4-4 4 4 0 0 1 4 4zM13 13l7 7M17 17l2-2',
};

/** @param {keyof typeof ICONS} name */
export function icon(name) {
  return svg('svg', { class: 'icon', viewBox: '0 0 24 24', 'aria-hidden': 'true' }, svg('path', { d: ICONS[name] }));
}

/**
 * A button with an icon, and with a text or, without one, a label for who cannot see the icon.
 * @param {keyof typeof ICONS} name
 * @param {string} label
 * @param {(event: Event) => void} act
 * @param {{text?: boolean, class?: string, attrs?: Record<string, any>}} [more]
 */
export function button(name, label, act, more = {}) {
  return el('button', {
    type: 'button', class: more.class ?? (more.text ? 'button' : 'ghost'), title: more.text ? null : label,
    'aria-label': more.text ? null : label, on: { click: act }, ...more.attrs,
  }, icon(name), more.text && el('span', { text: label }));
}
