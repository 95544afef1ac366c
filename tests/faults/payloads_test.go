package faults

import (
	"encoding/json"
	"maps"
	"math/rand/v2"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/schemas"
)

// schema is a part of a JSON Schema, of which it has what the events' schemas use.
type schema struct {
	Type                 string             `json:"type"`
	Properties           map[string]*schema `json:"properties"`
	Required             []string           `json:"required"`
	AdditionalProperties json.RawMessage    `json:"additionalProperties"`
	Items                *schema            `json:"items"`
	Enum                 []string           `json:"enum"`
	Pattern              string             `json:"pattern"`
	Format               string             `json:"format"`
	MinLength            int                `json:"minLength"`
	MaxLength            int                `json:"maxLength"`
	Minimum              *float64           `json:"minimum"`
	Maximum              *float64           `json:"maximum"`
	MinItems             int                `json:"minItems"`
	OneOf                []*schema          `json:"oneOf"`
	Const                any                `json:"const"`
}

// payloads draws payloads of events from their schemas.
type payloads struct{ chance *rand.Rand }

func schemaOf(t events.Type) (*schema, error) {
	text, err := schemas.File(t)
	if err != nil {
		return nil, err
	}
	s := &schema{}
	return s, json.Unmarshal(text, s)
}

// fits draws a value that fits.
func (p payloads) fits(s *schema) any {
	switch {
	case len(s.OneOf) > 0:
		return p.fits(s.OneOf[p.chance.IntN(len(s.OneOf))])
	case s.Const != nil:
		return s.Const
	}
	switch s.Type {
	case "object":
		object := map[string]any{}
		for _, name := range slices.Sorted(maps.Keys(s.Properties)) {
			if slices.Contains(s.Required, name) || p.chance.IntN(3) == 0 {
				object[name] = p.fits(s.Properties[name])
			}
		}
		other := &schema{}
		if json.Unmarshal(s.AdditionalProperties, other) == nil && other.Type != "" {
			object["any"] = p.fits(other)
		}
		return object
	case "array":
		list := []any{}
		for range s.MinItems + p.chance.IntN(3) {
			list = append(list, p.fits(s.Items))
		}
		return list
	case "string":
		return p.text(s)
	case "boolean":
		return p.chance.IntN(2) == 0
	case "integer", "number":
		least := 0.0
		if s.Minimum != nil {
			least = *s.Minimum
		}
		if s.Maximum == nil || least+3 <= *s.Maximum {
			least += float64(p.chance.IntN(4))
		}
		return least
	case "null":
		return nil
	}
	return "anything"
}

// examples are texts of which each pattern has one.
var examples = []string{
	strings.Repeat("0a", 32), strings.Repeat("0a", 20), strings.Repeat("0a", 16), "10m0s", "1GiB", "images", "name",
}

func (p payloads) text(s *schema) string {
	switch {
	case len(s.Enum) > 0:
		return s.Enum[p.chance.IntN(len(s.Enum))]
	case s.Format == "date-time":
		return time.Unix(p.chance.Int64N(1<<32), 0).UTC().Format(time.RFC3339)
	case s.Pattern != "":
		pattern := regexp.MustCompile(s.Pattern)
		return examples[max(0, slices.IndexFunc(examples, pattern.MatchString))]
	}
	return strings.Repeat("x", max(s.MinLength, 1))
}

// place is a value within a payload.
type place struct {
	schema *schema
	set    func(any)
	drop   func() // nil where nothing demands the value
}

// places are all of an object's.
func places(s *schema, value any) (all []place) {
	switch v := value.(type) {
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(v)) {
			of := s.Properties[name]
			if of == nil {
				continue
			}
			at := place{schema: of, set: func(x any) { v[name] = x }}
			if slices.Contains(s.Required, name) {
				at.drop = func() { delete(v, name) }
			}
			all = append(append(all, at), places(of, v[name])...)
		}
	case []any:
		for i := range v {
			all = append(append(all, place{schema: s.Items, set: func(x any) { v[i] = x }}), places(s.Items, v[i])...)
		}
	}
	return all
}

// Sizes of what is too large or too deep: messages have at most 128 KiB, and larger
// bodies go through the store.
const (
	hugeText = 200 << 10
	hugeList = 30_000
	deep     = 9_000 // encoding/json takes 10,000
)

// breaks changes a value in one place. It may still fit, where the schema has no bound.
func (p payloads) breaks(s *schema, value map[string]any) any {
	all := places(s, value)
	if len(all) == 0 || p.chance.IntN(12) == 0 {
		value["unknown"] = true
		return value
	}
	at := all[p.chance.IntN(len(all))]
	switch p.chance.IntN(8) {
	case 0:
		at.set(nil)
	case 1:
		if at.drop != nil {
			at.drop()
			break
		}
		at.set(map[string]any{"key": "../../etc/passwd", "size": -5})
	case 2:
		at.set([]json.Number{"-1e308", "1e400", "-9223372036854775809", "9223372036854775807", "0.5",
			"-1"}[p.chance.IntN(6)])
	case 3:
		at.set(strings.Repeat("\u0000ä", hugeText/7))
	case 4:
		at.set(slices.Repeat([]any{1}, hugeList))
	case 5:
		at.set(json.RawMessage(strings.Repeat("[", deep) + strings.Repeat("]", deep)))
	case 6:
		at.set([]any{"", "*", ">", "a.b", "\u202e", "NaN", 1, true, map[string]any{}}[p.chance.IntN(9)])
	case 7:
		at.set(map[string]any{"ref": "blobs/sha256/../../log", "sha256": strings.Repeat("f", 64),
			"size": int64(1) << 62})
	}
	return value
}

// nonsense draws a payload that fits its schema, one that is broken in one place, or the beginning
// of one. It says whether the schema takes it.
func (p payloads) nonsense(t events.Type) (body []byte, fits bool, err error) {
	s, err := schemaOf(t)
	if err != nil {
		return nil, false, err
	}
	value := p.fits(s)
	kind := p.chance.IntN(8)
	if kind > 1 {
		value = p.breaks(s, value.(map[string]any))
	}
	if body, err = json.Marshal(value); err != nil {
		return nil, false, err
	}
	if kind == 7 {
		body = body[:p.chance.IntN(len(body))]
	}
	return body, schemas.Validate(t, body) == nil, nil
}

// TestPayloads: what is drawn to fit a schema does, for each type, and each way to break it makes
// payloads that the schema refuses.
func TestPayloads(t *testing.T) {
	p := payloads{rand.New(rand.NewPCG(1, 4))}
	for _, typ := range events.Types() {
		s, err := schemaOf(typ)
		if err != nil {
			t.Fatal(err)
		}
		refused := 0
		for range 12 {
			body, err := json.Marshal(p.fits(s))
			if err != nil {
				t.Fatal(err)
			}
			if err := schemas.Validate(typ, body); err != nil {
				t.Fatalf("%s: %v: %s", typ, err, body)
			}
			broken, err := json.Marshal(p.breaks(s, p.fits(s).(map[string]any)))
			if err != nil {
				t.Fatal(err)
			}
			if schemas.Validate(typ, broken) != nil {
				refused++
			}
		}
		if refused < 6 {
			t.Errorf("%s: the schema refuses %d of 12 broken payloads", typ, refused)
		}
	}
}
