// Code in colours: comments, texts, numbers, keywords and names that are called. A tokeniser by families of languages.

const KEYWORDS = {
  c: 'auto break case char const continue default do double else enum extern float for goto if inline int long register return short signed sizeof static struct switch typedef union unsigned void volatile while bool true false NULL nullptr class namespace public private protected template typename using virtual new delete this throw try catch constexpr',
  js: 'async await break case catch class const continue debugger default delete do else export extends false finally for from function get if import in instanceof interface let new null of return set static super switch this throw true try type typeof undefined var void while yield enum implements readonly',
  python: 'and as assert async await break class continue def del elif else except False finally for from global if import in is lambda match None nonlocal not or pass raise return self True try while with yield',
  go: 'break case chan const continue default defer else fallthrough for func go goto if import interface map package range return select struct switch type var true false nil string int error bool byte',
  rust: 'as async await break const continue crate dyn else enum extern false fn for if impl in let loop match mod move mut pub ref return self Self static struct super trait true type unsafe use where while Some None Ok Err String Vec',
  java: 'abstract boolean break byte case catch char class const continue default do double else enum extends final finally float for if implements import instanceof int interface long new null package private protected public return short static super switch this throw throws true false try void while var record String',
  shell: 'case do done elif else esac export fi for function if in local read return set shift then trap until while echo cd exit source sudo',
  sql: 'add alter and as asc between by case create delete desc distinct drop else end exists foreign from group having in index inner insert into is join key left like limit not null on or order outer primary references right select set table then union unique update values view when where with',
  json: 'true false null',
  yaml: 'true false null yes no',
  css: 'important media supports import from to',
};
const FAMILIES = { 'c++': 'c', cpp: 'c', h: 'c', hpp: 'c', cuda: 'c', javascript: 'js', jsx: 'js', ts: 'js', tsx: 'js', typescript: 'js', mjs: 'js',
  py: 'python', python3: 'python', golang: 'go', rs: 'rust', kotlin: 'java', scala: 'java', 'c#': 'java', csharp: 'java', swift: 'java',
  sh: 'shell', bash: 'shell', zsh: 'shell', console: 'shell', jsonc: 'json', yml: 'yaml', toml: 'yaml', ini: 'yaml', scss: 'css',
  sqlite: 'sql', postgresql: 'sql', xml: 'html', svg: 'html' };
const HASH_COMMENTS = new Set(['python', 'shell', 'yaml']);
const LONGEST = 40_000; // characters; longer code stays plain

/** @param {string} family */
function patternOf(family) {
  if (family === 'html') return /(?<comment><!--[\s\S]*?(?:-->|$))|(?<string>"[^"\n]*"|'[^'\n]*')|(?<keyword><\/?[\w:-]+|\/?>)|(?<call>[\w:-]+(?==))/g;
  const comment = HASH_COMMENTS.has(family) ? '#.*' : family === 'sql' ? '--.*|/\\*[\\s\\S]*?(?:\\*/|$)' : '//.*|/\\*[\\s\\S]*?(?:\\*/|$)';
  const long = family === 'python' ? '"""[\\s\\S]*?(?:"""|$)|\'\'\'[\\s\\S]*?(?:\'\'\'|$)|' : '';
  const string = `${long}"(?:\\\\.|[^"\\\\\\n])*"?|'(?:\\\\.|[^'\\\\\\n])*'?|\`(?:\\\\.|[^\`\\\\])*\`?`;
  return new RegExp(`(?<comment>${comment})|(?<string>${string})|(?<number>\\b\\d[\\w.]*)|(?<name>[A-Za-z_$][\\w$]*)(?<open>\\s*\\()?`, 'g');
}

/** @param {string} code @returns {[string, string][]} */
function diffTokens(code) {
  return code.split(/(?<=\n)/).map((line) => [line.startsWith('+') ? 'added' : line.startsWith('-') ? 'removed' : line.startsWith('@') ? 'keyword' : '', line]);
}

/**
 * Pieces of code with the kind of each, '' for none. Joined they are the code.
 * @param {string} code
 * @param {string} language as a fence names it
 * @returns {[string, string][]}
 */
export function codeTokens(code, language) {
  const named = language.toLowerCase();
  const family = FAMILIES[named] ?? named;
  if (family === 'diff') return diffTokens(code);
  if (code.length > LONGEST || (family !== 'html' && !(family in KEYWORDS))) return [['', code]];
  const keywords = new Set((KEYWORDS[family] ?? '').split(' '));
  const out = [];
  let at = 0;
  for (const match of code.matchAll(patternOf(family))) {
    const { groups } = match;
    let [text] = match;
    let kind = Object.keys(groups).find((name) => groups[name] !== undefined);
    if (kind === 'name') {
      text = groups.name;
      kind = keywords.has(family === 'sql' ? text.toLowerCase() : text) ? 'keyword' : groups.open !== undefined ? 'call' : '';
    }
    if (match.index > at) out.push(['', code.slice(at, match.index)]);
    out.push([kind, text]);
    at = match.index + text.length;
  }
  out.push(['', code.slice(at)]);
  return out;
}
