// Two branches side by side, from where they part, with the first word that differs marked.
import { el, button } from './dom.js';
import { openDialog } from './overlays.js';
import { dividedReply } from './turn_view.js';

/** Where two texts differ first: the start of the word, or null. @param {string} a @param {string} b @returns {number|null} */
export function firstDifference(a, b) {
  if (a === b) return null;
  let at = 0;
  while (at < a.length && at < b.length && a[at] === b[at]) at++;
  while (at > 0 && !/\s/.test(a[at - 1])) at--;
  return at;
}

/** @param {string} text @param {number} at */
function withMark(text, at) {
  const word = /^\S+/.exec(text.slice(at))?.[0] ?? '';
  return word === '' ? [text.slice(0, at), el('mark', { text: '∎', title: 'Ends here' })]
    : [text.slice(0, at), el('mark', { text: word }), text.slice(at + word.length)];
}

/** What was said, one after another. @param {any[]} turns */
function saidIn(turns) {
  return turns.flatMap((turn) => [
    ...(turn.messages ?? []).map((message) => ({ turn: turn.turn, isUser: true, text: message.text ?? '' })),
    { turn: turn.turn, isUser: false, text: dividedReply(turn.reply ?? '').text },
  ]);
}

/** @param {any[]} said @param {any[]} other @param {number} parts where they part @param {string} name */
function side(said, other, parts, name) {
  return el('section', { class: 'side', tabindex: '0', 'aria-label': name }, el('h3', { class: 'section-title muted', text: name }),
    ...said.map((one, i) => {
      const at = i === parts ? firstDifference(one.text, other[i]?.text ?? '') : null;
      return el('div', { class: `said${one.isUser ? ' of-user' : ''}${i >= parts ? ' from-here' : ''}`, dir: 'auto' }, ...(at === null ? [one.text] : withMark(one.text, at)));
    }));
}

/**
 * Shows two conversations beside each other.
 * @param {{name: string, turns: any[]}} left @param {{name: string, turns: any[]}} right
 */
export function showCompared(left, right) {
  const a = saidIn(left.turns);
  const b = saidIn(right.turns);
  let parts = 0;
  while (parts < a.length && parts < b.length && a[parts].text === b[parts].text) parts++;
  const isSame = parts === a.length && parts === b.length;
  const verdict = isSame ? 'Both branches are the same' : `They part at turn ${(a[parts] ?? b[parts]).turn}`;
  const dialog = openDialog('Two branches', 'wide',
    el('div', { class: 'dialog-head' }, el('h2', { class: 'grow', text: verdict }), button('close', 'Close', () => dialog.close())),
    el('div', { class: 'sides' }, side(a, b, parts, left.name), side(b, a, parts, right.name)));
  for (const mark of dialog.querySelectorAll('mark')) mark.scrollIntoView({ block: 'center' });
}
