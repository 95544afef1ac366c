package words

import (
	"os"
	"slices"
	"strings"
	"testing"
	"unicode/utf8"
)

func TestOf(t *testing.T) {
	for _, c := range []struct{ text, want string }{
		{"", ""},
		{" \t\n(){}+-*/", ""},
		{"readFile", "read fil readfile"},
		{"read_file", "read fil readfile"},
		{"ReadFile", "read fil readfile"},
		{"__init__", "init"},
		{"___", ""},
		{"HTTPServer", "http serv httpserver"},
		{"parseURL", "pars url parseurl"},
		{"IDs of URLs", "ids of url"},
		{"userIDs", "user ids userids"},
		{"sha256", "sha 256 sha256"},
		{"utf8.RuneLen(x)", "utf 8 utf8 run len runelen x"},
		{"io.EOF", "io eof"},
		{"Größe naïve", "größe naïve"},
		{"nai\u0308ve", "naïve"}, // composed and decomposed are one word
		{"ÄnderungsDatum", "änderungs datum änderungsdatum"},
		{"ｆｕｌｌ", "full"},
		{"検索語 x", "検索 索語 x"},
		{"get検索Name", "get 検索 nam"},
		{"字", "字"},
		{"don't", "don t"},
		{"a\xff\xfeb", "a b"},
		{"\xff", ""},
		{strings.Repeat("a", MaxSize), strings.Repeat("a", MaxSize)},
		{strings.Repeat("a", MaxSize+1), ""},
		{"x_" + strings.Repeat("a", MaxSize), "x " + strings.Repeat("a", MaxSize)},
		{"d41d8cd98f00b204e9800998ecf8427e", "d41d8cd98f00b204e9800998ecf8427e"},
		{strings.Repeat("a1", MaxSize), ""},
	} {
		if got := strings.Join(Of(c.text), " "); got != c.want {
			t.Errorf("words of %q are %q, want %q", c.text, got, c.want)
		}
	}
}

func TestStem(t *testing.T) {
	for _, forms := range []string{
		"pars: parse parses parsed parsing parser parsers",
		"read: read reads reading reader readers",
		"alloc: alloc allocate allocates allocated allocating allocation allocator allocators",
		"writ: write writes writing writer",
		"creat: create creates created creation creating",
		"connect: connect connection connections connected",
		"stop: stop stops stopped stopping",
		"call: call calls called calling caller",
		"clos: close closes closed closing closer",
		"entry: entry entries",
		"match: match matches matching",
		"exact: exact exactly",
		"us: us", "status: status", "less: less", "class: class classes", "string: string",
		"bed: bed", "error: error errors",
	} {
		want, list, _ := strings.Cut(forms, ": ")
		for form := range strings.FieldsSeq(list) {
			if got := stem(form); got != want {
				t.Errorf("stem of %q is %q, want %q", form, got, want)
			}
		}
	}
}

func TestBounded(t *testing.T) {
	for _, text := range []string{
		strings.Repeat("a ", 10*Max), strings.Repeat("aB", 10*Max), strings.Repeat("検", 10*Max),
		strings.Repeat("a_", 10*Max),
		strings.Repeat("\ufdfa", Max), strings.Repeat("検a", 10*Max),
	} {
		check(t, text)
	}
}

func FuzzOf(f *testing.F) {
	for _, seed := range []string{"readFile(HTTPServer, sha256)", "IDs_of検索Änd", "\xff\u0308x",
		"a\ufdfab", "Ǆungla", "٣٤x"} {
		f.Add(seed)
	}
	f.Fuzz(check)
}

// check holds words to what callers build on.
func check(t *testing.T, text string) {
	list := Of(text)
	if len(list) > Max {
		t.Errorf("%d words, more than %d", len(list), Max)
	}
	for _, w := range list {
		if w == "" || len(w) > 2*MaxSize || !utf8.ValidString(w) || strings.ContainsAny(w, "_ \t\n.") {
			t.Fatalf("%q is no word", w)
		}
	}
	if !slices.Equal(list, Of(text)) {
		t.Error("the same text has other words")
	}
	if both := Of(text + " " + text); len(both) < Max && len(list) > 0 && utf8.ValidString(text) &&
		!slices.Equal(both, append(slices.Clone(list), list...)) {
		t.Errorf("words of %q depend on what stands before them", text)
	}
}

func BenchmarkOf(b *testing.B) {
	text, err := os.ReadFile("words.go")
	if err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(text)))
	for b.Loop() {
		Of(string(text))
	}
}
