package chunk

import "github.com/rondo-rl/rondo/index/source"

// syntax is what a lexer must know of a language to tell code from comments and strings.
type syntax struct {
	comments   []string // to the end of the line
	blocks     [][2]string
	nested     bool     // whether block comments nest
	quotes     string   // strings of one line, with backslashes
	multiline  string   // quotes of strings that go over lines
	triple     bool     // """ and, with ' in quotes, '''
	raw        byte     // a quote without backslashes, over lines; 0 for none
	template   bool     // `…${…}…`
	regexps    bool     // /…/ where a value may stand
	rustRaw    bool     // r#"…"#, and 'a that is a lifetime
	cppRaw     bool     // R"x(…)x"
	heredocs   bool     // <<WORD
	wordHash   bool     // # begins a comment only at the beginning of a word
	top        []string // what at the left margin begins a declaration, whatever is still open
	decorators string   // the byte that begins a decorator: it belongs to what follows
}

var slashes = []string{"//"}
var slashStar = [][2]string{{"/*", "*/"}}

var syntaxes = map[source.Language]*syntax{
	source.Go: {comments: slashes, blocks: slashStar, quotes: `"'`, raw: '`',
		top: []string{"func ", "type ", "var ", "const ", "import "}},
	source.JavaScript: {comments: slashes, blocks: slashStar, quotes: `"'`, template: true,
		regexps: true, decorators: "@"},
	source.Java: {comments: slashes, blocks: slashStar, quotes: `"'`, triple: true, decorators: "@"},
	source.C:    {comments: slashes, blocks: slashStar, quotes: `"'`, cppRaw: true},
	source.Rust: {comments: slashes, blocks: slashStar, nested: true, multiline: `"`,
		rustRaw: true, decorators: "#"},
	source.CSS:    {blocks: slashStar, quotes: `"'`},
	source.PHP:    {comments: []string{"//", "#"}, blocks: slashStar, multiline: `"'`},
	source.Python: {comments: []string{"#"}, quotes: `"'`, triple: true, decorators: "@"},
	source.Ruby:   {comments: []string{"#"}, multiline: `"'`, wordHash: true},
	source.Shell:  {comments: []string{"#"}, multiline: `"'`, heredocs: true, wordHash: true},
}
