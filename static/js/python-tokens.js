// Python's words for colouring: [[class, text], …] that put together give the source again. It colours, and judges nothing.
const KEYWORDS =
  "False None True and as assert async await break class continue def del elif else except finally for from global if import in is lambda nonlocal not or pass raise return try while with yield match case";
const WORDS = new Set(KEYWORDS.split(" "));
const TOKEN =
  /(?<comment>#[^\n]*)|(?<string>[rRbBuUfF]{0,2}(?:"""[^]*?(?:"""|$)|'''[^]*?(?:'''|$)|"(?:[^"\\\n]|\\[^])*"?|'(?:[^'\\\n]|\\[^])*'?))|(?<number>\b\d[\w.]*)|(?<name>[A-Za-z_]\w*)|(?<decorator>@[A-Za-z_][\w.]*)|(?<other>[^\w"'#@]+|[^])/gu;
const KINDS = ["name", "other", "string", "comment", "number", "decorator"];

export function tokens(source) {
  const found = [];
  let before = "";
  for (const { groups } of source.matchAll(TOKEN)) {
    const kind = KINDS.find((name) => groups[name] !== undefined);
    const text = groups[kind];
    add(found, kind === "name" ? word(text, before) : kind, text);
    if (kind !== "other" || text.trim()) before = text;
  }
  return found;
}

function word(text, before) {
  if (WORDS.has(text)) return "keyword";
  return before === "def" || before === "class" ? "defined" : "other";
}

function add(found, kind, text) {
  const last = found.at(-1);
  if (last && last[0] === kind) last[1] += text;
  else found.push([kind, text]);
}
