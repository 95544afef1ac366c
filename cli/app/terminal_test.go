package app

import (
	"bytes"
	"math/rand/v2"
	"strings"
	"testing"
	"unicode"
	"unicode/utf8"
)

func TestClean(t *testing.T) {
	for in, want := range map[string]string{
		"plain":                       "plain",
		"a\r\nb\tc":                   "a\nb\tc",
		"\x1b[31mred\x1b[0m":          "␛[31mred␛[0m",
		"\x1b]0;title\x07":            "␛]0;title␇",
		"over\rwritten\b\x7f\x00":     "over␍written␈␡␀",
		"\u009b31m\u0085":             "\ufffd31m ",
		"\xff\xfe":                    "\ufffd",
		"abc\u202edcb\u2066x\u200b":   "abc\ufffddcb\ufffdx\ufffd",
		"日本 é ok\u0301":               "日本 é ok\u0301",
		"\u2028line\u00a0separator":   " line separator",
		"\U000e0041tags\U000e007fend": "\ufffdtags\ufffdend",
	} {
		t.Run(in, func(t *testing.T) {
			if got := Clean(in); got != want {
				t.Errorf("%q: %q, want %q", in, got, want)
			}
		})
	}
}

func FuzzClean(f *testing.F) {
	f.Add("a\x1b[2Jb\r\n\tc\u202e\xff")
	f.Fuzz(func(t *testing.T, text string) {
		got := Clean(text)
		harmless(t, got, "\n\t")
		for _, r := range TextRows(text, Plain) {
			harmless(t, r[0].Text, "")
		}
		if again := Clean(got); again != got {
			t.Errorf("%q becomes %q", got, again)
		}
	})
}

// harmless checks that a terminal would print a text as it is.
func harmless(t *testing.T, text, allowed string) {
	t.Helper()
	for _, r := range text {
		if !unicode.IsPrint(r) && !strings.ContainsRune(allowed, r) || unicode.Is(unicode.Cf, r) {
			t.Fatalf("%q in %.200q", r, text)
		}
	}
	if !utf8.ValidString(text) {
		t.Fatalf("%.200q is not UTF-8", text)
	}
}

// TestWrapping: rows are cut, but nothing of them gets lost, and none is wider than asked for.
func TestWrapping(t *testing.T) {
	random := rand.New(rand.NewPCG(1, 2))
	letters := []rune("ab 日é\u0301─")
	for range 2000 {
		var r Row
		whole := ""
		for range random.IntN(4) {
			var b strings.Builder
			for range random.IntN(12) {
				b.WriteRune(letters[random.IntN(len(letters))])
			}
			whole += b.String()
			r = append(r, Span{b.String(), Style("31")})
		}
		most := random.IntN(9) + 2
		joined := ""
		for _, part := range r.Wrap(most) {
			for _, s := range part {
				joined += s.Text
			}
			if n := part.width(); n > most {
				t.Fatalf("%q: a row of %d columns (limit %d)", whole, n, most)
			}
		}
		if joined != whole {
			t.Fatalf("%q became %q", whole, joined)
		}
	}
}

func TestBeside(t *testing.T) {
	var out bytes.Buffer
	s := &Screen{W: &out}
	s.Print(SideBySide([][]Row{{{{"one", Bold}}, {{"日本", Plain}}},
		{{{"two", Plain}}, {{"x", Plain}}, {{"three", Plain}}}}, 5, "|")...)
	if want := "one  |two\n日本 |x\n     |three\n"; out.String() != want {
		t.Errorf("%q", out.String())
	}
}

func TestShorten(t *testing.T) {
	rows := TextRows("1\n2\n3\n4\n5\n6", Plain)
	texts := func(rows []Row) (all string) {
		for _, r := range rows {
			all += r[0].Text + "|"
		}
		return all
	}
	for _, c := range []struct {
		head, tail int
		full       bool
		want       string
	}{
		{2, 1, false, "1|2|… 3 lines more (--full) …|6|"}, {2, 1, true, "1|2|3|4|5|6|"}, {3, 3, false, "1|2|3|4|5|6|"},
		{3, 2, false, "1|2|3|4|5|6|"}, {0, 1, false, "… 5 lines more (--full) …|6|"},
	} {
		if got := texts(Shorten(rows, c.head, c.tail, c.full)); got != c.want {
			t.Errorf("%+v: %s", c, got)
		}
	}
	if texts(rows) != "1|2|3|4|5|6|" {
		t.Error("the rows themselves were changed")
	}
}

func TestColours(t *testing.T) {
	var out bytes.Buffer
	for _, c := range []struct {
		color, environment string
		want               bool
	}{{colorAlways, "1", true}, {colorNever, "", false}, {ColorAuto, "", false}} { // a buffer is no terminal
		t.Setenv("NO_COLOR", c.environment)
		s, err := NewScreen(&out, c.color, -1)
		if err != nil || s.Color != c.want || s.Width != 0 {
			t.Errorf("%+v: %+v, %v", c, s, err)
		}
	}
	if _, err := NewScreen(&out, "pink", -1); err == nil || !strings.Contains(err.Error(), `"pink"`) {
		t.Errorf("%v", err)
	}
	out.Reset()
	(&Screen{W: &out, Color: true}).Print(Row{{"a", Red}, {"b", Plain}, {"", Bold}})
	if out.String() != "\x1b[31ma\x1b[0mb\n" {
		t.Errorf("%q", out.String())
	}
}

// TestCleaner: characters that come in pieces stay whole, whatever else comes.
func TestCleaner(t *testing.T) {
	for _, text := range []string{"plain\n", "für 漢字 😀\x1b[2J", "\xe6 broken", "\x80 a \xf0\x9f", ""} {
		var whole, pieces strings.Builder
		(&cleaner{w: &whole}).Write([]byte(text))
		c := &cleaner{w: &pieces}
		for i := range len(text) {
			if n, err := c.Write([]byte{text[i]}); n != 1 || err != nil {
				t.Fatal(n, err)
			}
		}
		if whole.String() != pieces.String() || strings.ContainsRune(whole.String(), '\x1b') {
			t.Errorf("%q: whole %q, in pieces %q", text, whole.String(), pieces.String())
		}
	}
}
