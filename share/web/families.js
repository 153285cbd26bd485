// Conversations and their forks, as one tree of turns. A fork has the turns of its parent up to where it left it, and turns of its
// own after that: a node of the tree is (owner, turn), the conversation that has the turn for its own.

/** @typedef {{key: string, owner: string, turn: number, parent: TreeNode|null, children: TreeNode[], isTip: boolean}} TreeNode */

/** @param {any} conversation @param {string} name */
function counted(conversation, name) {
  const value = Number(conversation.metadata?.[name]);
  return Number.isInteger(value) && value >= 0 ? value : null;
}

/** The number of turns that a fork shares with its parent; 0 where nobody wrote it down. @param {any} conversation */
export function forkedAt(conversation) {
  return conversation.parent ? counted(conversation, 'forked_at') ?? 0 : 0;
}

/**
 * The conversation above a fork, while that still has the turns that both share.
 * @param {Map<string, any>} all
 * @param {any} conversation
 */
function parentOf(all, conversation) {
  const parent = conversation.parent ? all.get(conversation.parent) : undefined;
  if (parent === undefined || (parent.turns ?? 0) < forkedAt(conversation)) return undefined;
  const generation = counted(conversation, 'forked_generation');
  return generation === null || generation === (parent.generation ?? 1) ? parent : undefined;
}

/** The id of the conversation that all others of the family came from. @param {Map<string, any>} all @param {any} conversation */
export function rootOf(all, conversation) {
  const seen = new Set();
  let at = conversation;
  for (;;) {
    const above = at.parent ? all.get(at.parent) : undefined;
    if (above === undefined || seen.has(above.conversation)) return at.conversation;
    seen.add(at.conversation);
    at = above;
  }
}

/**
 * Families, by the id of the root of each.
 * @param {Map<string, any>} all
 * @returns {Map<string, any[]>}
 */
export function familiesOf(all) {
  const families = new Map();
  for (const conversation of all.values()) {
    const root = rootOf(all, conversation);
    if (families.has(root)) families.get(root).push(conversation);
    else families.set(root, [conversation]);
  }
  return families;
}

/** @param {string} owner @param {number} turn */
const keyOf = (owner, turn) => `${owner}/${turn}`;

export class Tree {
  /**
   * @param {any[]} members of one family
   * @param {Map<string, number>} [running] the turn that each of them is computing
   */
  constructor(members, running = new Map()) {
    this.members = new Map(members.map((m) => [m.conversation, m]));
    /** @type {TreeNode[]} those without a parent */
    this.tops = [];
    /** @type {Map<string, TreeNode>} */
    this.nodes = new Map();
    /** @type {Map<string, string[]>} keys of a conversation's turns, from the first */
    this.paths = new Map();
    this.running = running;
    for (const member of [...members].sort((a, b) => Number(a.openedUnixMs ?? 0) - Number(b.openedUnixMs ?? 0))) this.#path(member);
  }

  /** @param {any} member @returns {string[]} */
  #path(member) {
    const known = this.paths.get(member.conversation);
    if (known) return known;
    this.paths.set(member.conversation, []); // of one that is its own ancestor, which a server does not say
    const above = parentOf(this.members, member);
    const path = above ? this.#path(above).slice(0, forkedAt(member)) : [];
    const last = Math.max(member.turns ?? 0, this.running.get(member.conversation) ?? 0);
    for (let turn = path.length + 1; turn <= last; turn++) path.push(this.#add(member.conversation, turn, path.at(-1)).key);
    if (path.length > 0) this.nodes.get(path.at(-1)).isTip = true;
    this.paths.set(member.conversation, path);
    return path;
  }

  /** @param {string} owner @param {number} turn @param {string|undefined} above */
  #add(owner, turn, above) {
    const parent = above === undefined ? null : this.nodes.get(above);
    const node = { key: keyOf(owner, turn), owner, turn, parent, children: [], isTip: false };
    (parent?.children ?? this.tops).push(node);
    this.nodes.set(node.key, node);
    return node;
  }

  /** Nodes of a conversation, from its first turn. @param {string} conversation @returns {TreeNode[]} */
  path(conversation) {
    return (this.paths.get(conversation) ?? []).map((key) => this.nodes.get(key));
  }

  /** The node's alternatives, itself among them. @param {TreeNode} node */
  siblings(node) {
    return node.parent?.children ?? this.tops;
  }

  /**
   * The conversation to show for a node: the given one if the node is on its way, else its owner.
   * @param {TreeNode} node @param {string} [preferred]
   */
  through(node, preferred) {
    return preferred && this.paths.get(preferred)?.includes(node.key) ? preferred : node.owner;
  }

  /**
   * A row for each node, in the order of time: a node's newest child goes on in its lane, the branches that were left before it
   * stand between, a lane further right. So there are as many lanes as branches lie in each other.
   * @returns {{node: TreeNode, row: number, lane: number}[]}
   */
  rows() {
    const rows = [];
    const todo = [];
    const push = (nodes, lane) => {
      for (const [i, node] of [...nodes].reverse().entries()) todo.push({ node, lane: i === 0 ? lane : lane + 1 });
    };
    push(this.tops, 0);
    while (todo.length > 0) {
      const { node, lane } = todo.pop();
      rows.push({ node, row: rows.length, lane });
      push(node.children, lane);
    }
    return rows;
  }
}
