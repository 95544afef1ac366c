package dialects

import (
	"encoding/base64"
	"encoding/json"
	"fmt"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/inference/images"
	"github.com/rondo-rl/rondo/storage"
)

// Two images of 3 by 2 pixels.
const (
	red   = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEElEQVR4nGM8wQAFTDAGAwAPFADMILIQogAAAABJRU5ErkJggg=="
	green = "iVBORw0KGgoAAAANSUhEUgAAAAMAAAACCAIAAAASFvFNAAAAEUlEQVR4nGNkOMEAAUwMMAAADkwAzJ2EfDUAAAAASUVORK5CYII="
)

func described(t *testing.T, text string) storage.Image {
	t.Helper()
	data, err := base64.StdEncoding.DecodeString(text)
	if err != nil {
		t.Fatal(err)
	}
	i, err := images.Read(data)
	if err != nil {
		t.Fatal(err)
	}
	return i
}

// TestImages: an image is the same in all dialects, wherever clients put it and whatever they call
// it: on the log by its digest, and to the server as what it is.
func TestImages(t *testing.T) {
	one, two := described(t, red), described(t, green)
	url := func(text string) string { return "data:image/png;base64," + text }
	loose := strings.TrimRight(strings.NewReplacer("+", "-", "/", "_").Replace(red), "=")
	for name, c := range map[string]struct {
		Dialect
		body string
	}{
		"chat": {Chat{}, `{"messages":[{"role":"user","content":[{"type":"text","text":"This "},{"type":"image_url","image_url":{"url":"` + url(red) + `","detail":"low"}},{"type":"text","text":" is?"}]},
			{"role":"assistant","tool_calls":[{"id":"c","type":"function","function":{"name":"f","arguments":"{}"}}]},
			{"role":"tool","tool_call_id":"c","content":[{"type":"text","text":"r"},{"type":"image_url","image_url":{"url":"data:image/jpeg;base64,` + green + `"}}]}]}`},
		"responses": {Responses{}, `{"input":[{"role":"user","content":[{"type":"input_text","text":"This "},{"type":"input_image","image_url":"DATA:text/plain;charset=x;base64,` + loose + `","detail":"auto"},
			{"type":"input_text","text":" is?"}]},{"type":"function_call","call_id":"c","name":"f","arguments":"{}"},
			{"type":"function_call_output","call_id":"c","output":[{"type":"input_text","text":"r"},{"type":"input_image","image_url":"` + url(green) + `"}]}]}`},
		"messages": {Messages{}, `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"text","text":"This "},{"type":"image","source":{"type":"base64","media_type":"image/gif","data":"` + red + `"},
			"cache_control":{"type":"ephemeral"}},{"type":"text","text":" is?"}]},{"role":"assistant","content":[{"type":"tool_use","id":"c","name":"f","input":{}}]},
			{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"text","text":"r"},{"type":"image","source":{"type":"base64","media_type":"image/png","data":"` + green + `"}}]}]}]}`},
		"gemini": {Gemini{}, `{"contents":[{"role":"user","parts":[{"text":"This "},{"inline_data":{"mime_type":"image/png","data":"` + loose + `"}},{"text":" is?"}]},
			{"role":"model","parts":[{"functionCall":{"id":"c","name":"f","args":{}}}]},
			{"role":"user","parts":[{"functionResponse":{"id":"c","name":"f","response":{"output":"r"},"parts":[{"inlineData":{"mimeType":"image/png","data":"` + green + `"}}]}}]}]}`},
	} {
		a, err := c.Read([]byte(c.body))
		if err != nil {
			t.Errorf("%s: %v", name, err)
			continue
		}
		first, last := a.Conversation[0], a.Conversation[len(a.Conversation)-1]
		one.At, two.At = len("This "), len("r")
		if first.Content != "This "+one.Name()+" is?" || last.Content != "r"+two.Name() ||
			!reflect.DeepEqual(first.Images, []storage.Image{one}) ||
			!reflect.DeepEqual(last.Images, []storage.Image{two}) || last.Role != "tool" || last.ToolCallID != "c" {
			t.Errorf("%s: read %+v and %+v", name, first, last)
		}
		for _, m := range a.Conversation {
			if err := storage.CheckImages(m.Images, m.Content); err != nil {
				t.Errorf("%s: %v", name, err)
			}
		}
		var sent []struct {
			Content json.RawMessage `json:"content"`
		}
		if err := json.Unmarshal(a.Forward["messages"], &sent); err != nil {
			t.Fatal(err)
		}
		if got, want := string(sent[0].Content),
			`[{"type":"text","text":"This "},{"type":"image_url","image_url":{"url":"`+url(red)+
				`"}},{"type":"text","text":" is?"}]`; got != want {
			t.Errorf("%s: the server gets %s, want %s", name, got, want)
		}
		if got, want := string(sent[2].Content), `[{"type":"text","text":"r"},{"type":"image_url","image_url":{"url":"`+
			url(green)+`"}}]`; got != want {
			t.Errorf("%s: the server gets %s, want %s", name, got, want)
		}
		if len(a.Images) != 2 || storage.Digest(a.Images[one.SHA256]) != one.SHA256 ||
			storage.Digest(a.Images[two.SHA256]) != two.SHA256 {
			t.Errorf("%s: %d images", name, len(a.Images))
		}
	}
}

// TestImagesRefused: what is no image of its own, or is too much, is refused with its place,
// and no address is repeated.
func TestImagesRefused(t *testing.T) {
	part := func(url string) string { return `{"type":"image_url","image_url":{"url":"` + url + `"}}` }
	chat := func(role, parts string) string {
		return `{"messages":[{"role":"` + role + `","content":[` + parts + `]}]}`
	}
	block := func(source string) string {
		return `{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"image","source":` + source + `}]}]}`
	}
	image := part("data:image/png;base64," + red)
	svg := "data:image/svg+xml;base64," + base64.StdEncoding.EncodeToString(
		[]byte(`<svg xmlns="http://www.w3.org/2000/svg"/>`))
	for name, c := range map[string]struct {
		Dialect
		body, want string
	}{
		"elsewhere": {Chat{}, chat("user", part("https://user:secret@example.org/a.png")),
			`messages[0]: content[0]: the address of an image has the scheme "https"`},
		"a file":         {Chat{}, chat("user", part("file:///etc/passwd")), `the scheme "file"`},
		"no scheme":      {Chat{}, chat("user", part("secret")), "the scheme"},
		"no Base64":      {Chat{}, chat("user", part("data:image/png;base64,%%")), "no Base64"},
		"not said to be": {Chat{}, chat("user", part("data:image/png,"+red)), "want data:MEDIA-TYPE;base64,DATA"},
		"SVG":            {Chat{}, chat("user", part(svg)), "no image that is known by its header"},
		"no URL":         {Chat{}, chat("user", `{"type":"image_url"}`), "image_url"},
		"of the model":   {Chat{}, chat("assistant", image), `a part of type "image_url"`},
		"of the system":  {Chat{}, chat("system", image), `a part of type "image_url"`},
		"a video": {Chat{}, chat("user", `{"type":"video_url","video_url":{"url":"data:,"}}`),
			`a part of type "video_url"`},
		"sound": {Chat{}, chat("user", `{"type":"input_audio","input_audio":{"data":"AA=="}}`),
			`a part of type "input_audio"`},
		"too many": {Chat{}, chat("user", strings.Repeat(image+",", storage.MaxImages)+image),
			"more than 100 images"},
		"by id": {Responses{},
			`{"input":[{"role":"user","content":[{"type":"input_image","file_id":"file-1"}]}]}`, "file_id"},
		"of its own model": {Responses{},
			`{"input":[{"role":"assistant","content":[{"type":"input_image","image_url":"` + svg + `"}]}]}`,
			`"input_image"`},
		"by URL": {Messages{}, block(`{"type":"url","url":"https://example.org/a.png"}`),
			`content[0]: source: type "url"`},
		"by a file's id": {Messages{}, block(`{"type":"file","file_id":"f"}`), `source: type "file"`},
		"a document": {Messages{},
			`{"max_tokens":1,"messages":[{"role":"user","content":[{"type":"tool_result","tool_use_id":"c","content":[{"type":"document"}]}]}]}`, `"document"`},
		"of Claude": {Messages{},
			`{"max_tokens":1,"messages":[{"role":"assistant","content":[{"type":"image"}]}]}`,
			`"image" in a message of role assistant`},
		"in the instruction": {Gemini{},
			`{"contents":[{"parts":[{"text":"q"}]}],"systemInstruction":{"parts":[{"inlineData":{"data":"` + red +
				`"}}]}}`, "systemInstruction"},
		"of Gemini": {Gemini{}, `{"contents":[{"role":"model","parts":[{"inlineData":{"data":"` + red +
			`"}}]}]}`, "the user's part"},
		"a PDF": {Gemini{},
			`{"contents":[{"parts":[{"inlineData":{"mimeType":"application/pdf","data":"JVBERi0="}}]}]}`,
			"contents[0]: parts[0]: inlineData: no image"},
		"a file's data": {Gemini{},
			`{"contents":[{"parts":[{"fileData":{"fileUri":"https://example.org/a.png"}}]}]}`, "fileData"},
	} {
		if _, err := c.Read([]byte(c.body)); err == nil || !strings.Contains(err.Error(), c.want) ||
			strings.Contains(err.Error(), "secret@") || strings.Contains(err.Error(), "passwd") {
			t.Errorf("%s: %.300v, want %q", name, err, c.want)
		}
	}
	var g gallery
	g.pixels = maxPixels - 5
	var w words
	if err := g.take(&w, red); err == nil || !strings.Contains(err.Error(), fmt.Sprint(maxPixels)) {
		t.Errorf("too many pixels: %v", err)
	}
}

// TestForwardedAsRead: the server gets what was read and nothing beside it; keys that only their
// case tells from those are refused.
func TestForwardedAsRead(t *testing.T) {
	image := `"image_url":{"url":"http://10.0.0.1/x"}`
	for body, want := range map[string]string{
		`{"role":"user","content":[{"type":"text","text":"hi","cache_control":{},` + image +
			`}]}`: `{"content":[{"type":"text","text":"hi"}],"role":"user"}`,
		`{"role":"user","content":"hi","more":1}`: `{"content":"hi","more":1,"role":"user"}`,
		`{"role":"system","content":[{"type":"refusal","refusal":"no",` + image +
			`}]}`: `{"content":[{"type":"text","text":"no"}],"role":"system"}`,
		`{"role":"assistant","content":[{"type":"thinking","thinking":"a<b","closed":false,` + image +
			`}]}`: `{"content":[{"type":"thinking","thinking":"a<b","closed":false}],"role":"assistant"}`,
		`{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"text","text":"hm",` + image +
			`}]}]}`: `{"content":[{"type":"thinking","thinking":"hm"}],"role":"assistant"}`,
		`{"role":"user","content":[{"type":"text","text":"",` + image +
			`}]}`: `{"content":[{"type":"text","text":""}],"role":"user"}`,
		`{"role":"assistant","tool_calls":[{"id":"d","function":{"name":"f","arguments":"{}"},` + image +
			`}]}`: `{"role":"assistant","tool_calls":[{"id":"d","type":"function","function":{"name":"f","arguments":"{}"}}]}`,
	} {
		a, err := Chat{}.Read([]byte(`{"messages":[` + body + `]}`))
		if err != nil || string(a.Forward["messages"]) != "["+want+"]" || len(a.Images) > 0 {
			t.Errorf("%s: the server gets %s, want %s (%v)", body, a.Forward["messages"], want, err)
		}
	}
	chat := func(message string) string { return `{"messages":[{"role":"user",` + message + `}]}` }
	for name, c := range map[string]struct {
		Dialect
		body, want string
	}{
		"two types of a part": {Chat{}, chat(`"content":[{"type":"image_url","type":"text",` +
			image + `,"text":"hi"}]`),
			`content[0]: type: the object has it more than once`},
		"two contents": {Chat{}, chat(`"content":[{"type":"image_url",` + image + `}],"content":"hi"`),
			`content: the object has it more than once`},
		"an id of a call": {Chat{}, chat(`"content":"","tool_calls":[{"id":"c","ID":"d"}]`),
			`tool_calls: [0]: "ID": it is spelled id`},
		"a part's type": {Chat{}, chat(`"content":[{"type":"image_url",` + image + `,"Type":"text","text":"hi"}]`),
			`content[0]: "Type": it is spelled type`},
		"another alphabet": {Chat{}, chat(`"content":[{"type":"text","text":"hi","Image_url":1}]`),
			`"Image_url": it is spelled image_url`},
		"a long s": {Chat{}, chat(`"content":"hi","role` + "\u017f" + `":1,"tool_call` + "\u017f" + `":[]`),
			`it is spelled tool_calls`},
		"a content": {Chat{}, chat(`"content":[{"type":"image_url",` + image + `}],"Content":"hi"`),
			`messages[0]: "Content": it is spelled content`},
		"an image's URL": {Chat{},
			chat(`"content":[{"type":"image_url","image_url":{"url":"http://10.0.0.1/x","URL":"data:image/png;base64,` +
				red + `"}}]`), `"URL": it is spelled url`},
		"the messages": {Chat{}, `{"messages":[{"role":"user","content":"hi"}],"Messages":[]}`,
			`"Messages": it is spelled messages`},
		"of responses": {Responses{},
			`{"input":[{"role":"user","content":[{"type":"input_text","text":"a","Text":"b"}]}]}`,
			`"Text": it is spelled text`},
		"within a settings": {Responses{}, `{"input":"q","text":{"format":{"type":"text"},"Format":null}}`,
			`"Format": it is spelled format`},
		"of Gemini": {Gemini{}, `{"contents":[{"parts":[{"text":"a","Text":""}]}]}`,
			`"Text": it is spelled text`},
		"no object": {Chat{}, chat(`"content":["hi"]`), "want an object"},
		"an image within": {Chat{},
			`{"messages":[{"role":"assistant","content":[{"type":"thinking","thinking":[{"type":"image_url",` + image +
				`}]}]}]}`, `thinking: content[0]: a part of type "image_url"`},
	} {
		if _, err := c.Read([]byte(c.body)); err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", name, err, c.want)
		}
	}
}
