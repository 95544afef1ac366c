package opening

import (
	"encoding/json"
	"reflect"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events/runfile"
)

// TestRows: a line is a task, and what the agent must not see is its data.
func TestRows(t *testing.T) {
	specs, err := readRows(strings.NewReader(`{"name": "sum", "instruction": "What is 1 + 1?", "answer": "2"}` +
		"\n\n" + `{"instruction": "Guess.", "number": 9007199254740993}` + "\n"))
	if err != nil {
		t.Fatal(err)
	}
	if len(specs) != 2 || specs[0].Name != "sum" || specs[1].Name != "row-3" ||
		specs[0].Instruction != "What is 1 + 1?" ||
		!reflect.DeepEqual(specs[0].Data, runfile.TaskData{"answer": "2"}) || specs[0].HasWorkspace() ||
		specs[0].HasVerifier() || specs[0].Digest == specs[1].Digest {
		t.Errorf("%+v", specs)
	}
	if text, err := json.Marshal(specs[1].Data); err != nil || string(text) != `{"number":9007199254740993}` {
		t.Errorf("the data of a row are %s: %v", text, err)
	}
	for name, c := range map[string]struct{ text, want string }{
		"none":             {"\n", "no tasks"},
		"no object":        {"[]", "line 1"},
		"no JSON":          {`{"instruction": "a"}` + "\n{", "line 2"},
		"a number":         {`{"instruction": 7}`, "instruction: must be a text"},
		"an empty name":    {`{"instruction": "a", "name": ""}`, "name: must be a text"},
		"a line too large": {`{"instruction": "` + strings.Repeat("a", maxRow) + `"}`, "at most 1048576 bytes"},
	} {
		t.Run(name, func(t *testing.T) {
			if _, err := readRows(strings.NewReader(c.text)); err == nil || !strings.Contains(err.Error(), c.want) {
				t.Errorf("%v, want %q", err, c.want)
			}
		})
	}
}
