// Package schemas holds the JSON Schema of every event's payload, as files that anyone can
// read and as a validator. The files are generated from the Go types of package events, and
// a test holds them to it.
package schemas

import (
	"bytes"
	"embed"
	"fmt"
	"io/fs"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/wording"
)

//go:embed *.json
var files embed.FS

// File is the schema of a type as it is in this folder.
func File(t events.Type) ([]byte, error) {
	data, err := fs.ReadFile(files, string(t)+".json")
	if err != nil {
		return nil, fmt.Errorf("no schema for %q: the types are %v", t, events.Types())
	}
	return data, nil
}

var compiled = sync.OnceValues(func() (map[events.Type]*jsonschema.Schema, error) {
	c := jsonschema.NewCompiler()
	c.AssertFormat()
	all := map[events.Type]*jsonschema.Schema{}
	for _, t := range events.Types() {
		data, err := File(t)
		if err != nil {
			return nil, err
		}
		doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(data))
		if err != nil {
			return nil, fmt.Errorf("schema of %s: %w", t, err)
		}
		name := string(t) + ".json"
		if err := c.AddResource(name, doc); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", t, err)
		}
		if all[t], err = c.Compile(name); err != nil {
			return nil, fmt.Errorf("schema of %s: %w", t, err)
		}
	}
	return all, nil
})

// Validate checks a payload against the schema of its type. The error names the field.
func Validate(t events.Type, payload []byte) error {
	all, err := compiled()
	if err != nil {
		return err
	}
	schema, ok := all[t]
	if !ok {
		return fmt.Errorf("unknown event type %q", t)
	}
	doc, err := jsonschema.UnmarshalJSON(bytes.NewReader(payload))
	if err != nil {
		return fmt.Errorf("payload is not JSON: %w", err)
	}
	if err := schema.Validate(doc); err != nil {
		return firstCause(err)
	}
	if key := wording.Twice(payload); key != "" {
		return fmt.Errorf("the key %.80q is there twice", key)
	}
	return nil
}
