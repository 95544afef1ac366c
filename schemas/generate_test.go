package schemas

import (
	"encoding/json"
	"reflect"

	"github.com/invopop/jsonschema"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// generated is the schema of a type, made from its Go payload.
func generated(t events.Type) ([]byte, error) {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true, Mapper: mapped}
	schema := r.Reflect(events.Payload(t))
	schema.Title = string(t)
	data, err := json.MarshalIndent(schema, "", "  ")
	return append(data, '\n'), err
}

// mapped spells the types that read and write as text.
func mapped(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[runfile.Size]():
		return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+([KMGT]iB)?$`, Description: "a number of bytes, for example 8GiB"}
	case reflect.TypeFor[runfile.InFlight]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer"}, {Const: "auto"}}}
	case reflect.TypeFor[runfile.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^-?([0-9.]+(ns|us|µs|ms|s|m|h))+$`, Description: "a duration: a number with a unit, for example 90s"}
	}
	return nil
}
