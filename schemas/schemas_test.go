package schemas

import (
	"flag"
	"os"
	"strings"
	"testing"

	"github.com/rondo-rl/rondo/events"
)

var rewrite = flag.Bool("rewrite", false, "write the schemas from the Go types")

func TestSchemasAreTheGoTypes(t *testing.T) {
	for _, typ := range events.Types() {
		want, err := generated(typ)
		if err != nil {
			t.Fatal(err)
		}
		if *rewrite {
			if err := os.WriteFile(string(typ)+".json", want, 0o644); err != nil {
				t.Fatal(err)
			}
			continue
		}
		got, err := File(typ)
		if err != nil {
			t.Fatal(err)
		}
		if string(got) != string(want) {
			t.Errorf("schemas/%s.json is not what the Go type says; run: go test ./schemas -rewrite", typ)
		}
	}
}

func TestNoSchemaWithoutType(t *testing.T) {
	entries, err := os.ReadDir(".")
	if err != nil {
		t.Fatal(err)
	}
	for _, e := range entries {
		name, isSchema := strings.CutSuffix(e.Name(), ".json")
		if isSchema && !events.Type(name).IsDefined() {
			t.Errorf("schemas/%s belongs to no event type", e.Name())
		}
	}
}

func TestValidateNamesTheField(t *testing.T) {
	for name, c := range map[string]struct {
		typ     events.Type
		payload string
		want    string // "" = valid
	}{
		"valid":         {events.BatchConsumedType, `{"step": 3}`, ""},
		"missing":       {events.BatchConsumedType, `{}`, "step"},
		"wrong type":    {events.BatchConsumedType, `{"step": "three"}`, "step: "},
		"out of range":  {events.BatchConsumedType, `{"step": 0}`, "step: "},
		"unknown field": {events.BatchConsumedType, `{"step": 1, "stepp": 2}`, "stepp"},
		"not JSON":      {events.BatchConsumedType, `{"step": `, "not JSON"},
		"twice":         {events.BatchConsumedType, `{"step": 1, "step": 2}`, `the key "step" is there twice`},
		"nested": {events.WeightsSubmittedType,
			`{"version":1,"run":"r","through_step":1,"files":[{"name":"a/b","blob":{"ref":"x","sha256":"y","size":1}}]}`, "files.0.name"},
		"unknown type": {events.Type("rollout.exploded"), `{}`, "unknown event type"},
	} {
		t.Run(name, func(t *testing.T) {
			err := Validate(c.typ, []byte(c.payload))
			switch {
			case c.want == "" && err != nil:
				t.Errorf("%s: %v", name, err)
			case c.want != "" && (err == nil || !strings.Contains(err.Error(), c.want)):
				t.Errorf("%s: got %v, want an error about %q", name, err, c.want)
			}
		})
	}
}
