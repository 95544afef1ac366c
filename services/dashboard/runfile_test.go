package dashboard

import (
	"cmp"
	"encoding/json"
	"html"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/goccy/go-yaml"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
	"github.com/rondo-rl/rondo/services/servicetest"
)

// TestRunFile: a run's page leads to its run file, which says what was recorded,
// whatever is in its texts.
func TestRunFile(t *testing.T) {
	d := newDesk(t)
	cfg := servicetest.Config("fix")
	cfg.SystemPrompt = "first: # no comment\n\"second\"\nyes"
	cfg.Seed, cfg.Pool = 9007199254740993, "off"
	servicetest.OpenRun(t, d.log, "live", cfg)
	d.has("/runs/live", `href="/runs/live/file"`)
	page := d.show("/runs/live/file")
	_, text, _ := strings.Cut(page, `<pre class="file">`)
	text, _, _ = strings.Cut(text, "</pre>")
	var tree map[string]any
	if err := yaml.Unmarshal([]byte(html.UnescapeString(text)), &tree); err != nil {
		t.Fatal(err, text)
	}
	written, err := json.Marshal(tree)
	if err != nil {
		t.Fatal(err)
	}
	var got runfile.RunConfig
	if err := json.Unmarshal(written, &got); err != nil {
		t.Fatal(err, text)
	}
	cfg.Tasks = nil
	if !reflect.DeepEqual(got, cfg) || !strings.Contains(page, "1 tasks") {
		t.Errorf("the page has\n%s\nwhich is\n%+v, want\n%+v", text, got, cfg)
	}
	if strings.Contains(text, "{") {
		t.Errorf("the file is JSON:\n%s", text)
	}
	if _, err := d.log.JetStream().Publish(t.Context(), events.IntakeSubject("live", events.RunPausedType, "live"),
		[]byte("{}")); err != nil {
		t.Fatal(err)
	}
	for _, run := range []string{"none", "IN"} { // the stream RONDO_IN is no run's
		if w := d.ask("/runs/" + run + "/file"); w.Code != 404 {
			t.Errorf("%s: %d", run, w.Code)
		}
	}
}

// TestRunFileTexts: a text of any kind is read as it was written, but for
// returns, which pages leave out.
func TestRunFileTexts(t *testing.T) {
	for _, text := range append(slices.Clone(evils), "", " ", "yes", "0x1f", "1e3", "null", "a: b", "- a", "a\n\n  b\n",
		"é\u2028\U0001f600", "%x", "@x", "`x`", "|", "# x", "'", "\"", "\\n") {
		file, err := fileOf(runfile.RunConfig{SystemPrompt: text})
		var got struct {
			SystemPrompt string `yaml:"system_prompt"`
		}
		if err := cmp.Or(err, yaml.Unmarshal([]byte(file), &got)); err != nil ||
			got.SystemPrompt != strings.ReplaceAll(text, "\r", "\n") {
			t.Errorf("%q is read as %q: %v\n%s", text, got.SystemPrompt, err, file)
		}
	}
}
