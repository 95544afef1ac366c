package search

import (
	"slices"
	"strings"
	"testing"
)

func TestNamesIn(t *testing.T) {
	for text, want := range map[string]string{
		"":                                "",
		"how does it work":                "",
		"Where is the server started?":    "",
		"parser":                          "parser",
		"OpenStore":                       "openstore",
		"where is parse_args called":      "parse_args",
		"callers of storage.Open please":  "storage.open",
		"what does close() do":            "close",
		"`run` the thing":                 "run",
		"std::vector::push_back, quickly": "std::vector::push_back",
		"see a.b.":                        "a.b",
		"the HTTP API":                    "",
		"IOError and e.g. others":         "e.g ioerror",
		"(*Reader).ReadAll":               "reader.readall",
		"x_ y_ z_ a_ b_ c_ d_ e_ f_ g_":   "a_ b_ c_ d_ e_ x_ y_ z_",
		"camelCase camelCase":             "camelcase",
		"fooBar 漢字 größeÄnderung":         "foobar größeänderung",
	} {
		t.Run(text, func(t *testing.T) {
			got := namesIn(text)
			slices.Sort(got)
			if strings.Join(got, " ") != want {
				t.Errorf("%q: %q, want %q", text, got, want)
			}
		})
	}
}

func FuzzNamesIn(f *testing.F) {
	f.Add("where is `OpenStore()` (*x).Y::z called?")
	f.Fuzz(func(t *testing.T, text string) {
		if names := namesIn(text); len(names) > maxNames || slices.Contains(names, "") {
			t.Errorf("%q", names)
		}
	})
}
