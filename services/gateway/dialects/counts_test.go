package dialects

import (
	"encoding/json"
	"net/url"
	"reflect"
	"runtime"
	"strings"
	"testing"
)

// TestCounting: a request for a number of tokens is read as the same request for an answer is, and
// answered in the provider's words.
func TestCounting(t *testing.T) {
	const talk = `"system":"S","messages":[{"role":"user","content":"U"}],"tools":[{"name":"f","input_schema":{"type":"object"}}]`
	const contents = `"contents":[{"role":"user","parts":[{"text":"U"}]}]`
	const request = `"systemInstruction":{"parts":[{"text":"S"}]},"tools":[{"functionDeclarations":[{"name":"f"}]}],` +
		contents
	gemini, err := GeminiMethod("m:countTokens", url.Values{})
	if err != nil {
		t.Fatal(err)
	}
	counting, counts := gemini.(Counting)
	if !counts {
		t.Fatalf("countTokens is %T", gemini)
	}
	for name, c := range map[string]struct {
		counts            Counting
		samples           Dialect
		asks, like, wants string
	}{
		"messages": {MessagesCount{}, Messages{}, `{` + talk + `}`,
			`{"max_tokens":1,` + talk + `}`, `{"input_tokens":7}`},
		"contents": {counting, Gemini{Model: "m"}, `{` + contents + `}`,
			`{` + contents + `}`, `{"totalTokens":7}`},
		"a request": {counting, Gemini{Model: "m"},
			`{"generateContentRequest":{"model":"models/x",` + request + `}}`,
			`{` + request + `}`, `{"totalTokens":7}`},
		"in the other spelling": {counting, Gemini{Model: "m"}, `{"generate_content_request":{` + request + `}}`,
			`{` + request + `}`, `{"totalTokens":7}`},
	} {
		got, err := c.counts.Read([]byte(c.asks))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		want, err := c.samples.Read([]byte(c.like))
		if err != nil {
			t.Fatal(err)
		}
		if !reflect.DeepEqual(got.Conversation, want.Conversation) || !reflect.DeepEqual(got.Forward, want.Forward) ||
			len(got.Conversation) == 0 {
			t.Errorf("%s: read %v %s, a request for an answer is %v %s", name, got.Conversation, got.Forward,
				want.Conversation, want.Forward)
		}
		if text, err := json.Marshal(c.counts.Counted(7)); err != nil || string(text) != c.wants {
			t.Errorf("%s: answered %s, %v, want %s", name, text, err, c.wants)
		}
	}
	for asks, want := range map[string]string{
		`{` + contents + `,"generateContentRequest":{` + contents + `}}`:    "want one of them",
		`{` + contents + `,"tools":[{}]}`:                                   "tools",
		`{"generateContentRequest":{"cachedContent":"c",` + contents + `}}`: "generateContentRequest: cachedContent",
		`{"generateContentRequest":7}`:                                      "want an object",
		`{}`:                                                                "contents",
	} {
		if _, err := counting.Read([]byte(asks)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", asks, err, want)
		}
	}
	for asks, want := range map[string]string{
		`{"max_tokens":-1,` + talk + `}`: "max_tokens", `{` + talk + `,"containers":"c"}`: "containers",
		`{"messages":[]}`: "messages",
	} {
		if _, err := (MessagesCount{}).Read([]byte(asks)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", asks, err, want)
		}
	}
	if _, err := (Messages{}).Read([]byte(`{` + talk + `}`)); err == nil {
		t.Error("a request for an answer needs no max_tokens")
	}
}

// TestCountingCopies: a request within a request for a number of tokens is read in place. Signs
// that JSON may escape make it no larger.
func TestCountingCopies(t *testing.T) {
	body := `{"contents":[{"role":"user","parts":[{"text":"` + strings.Repeat("<", 1<<18) + `"}]}]}`
	// others allocate meanwhile, and a collection empties what is kept for the next
	takes := func(d Dialect, body string) (least uint64) {
		for range 3 {
			var before, after runtime.MemStats
			runtime.ReadMemStats(&before)
			if _, err := d.Read([]byte(body)); err != nil {
				t.Fatal(err)
			}
			runtime.ReadMemStats(&after)
			if took := after.TotalAlloc - before.TotalAlloc; least == 0 || took < least {
				least = took
			}
		}
		return least
	}
	plain := takes(GeminiCount{}, body)
	if within := takes(GeminiCount{}, `{"generateContentRequest":`+body+`}`); within > 2*plain {
		t.Errorf("a request takes %d bytes, and %d within another one", plain, within)
	}
}
