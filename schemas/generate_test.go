package schemas

import (
	"encoding/json"
	"reflect"
	"slices"

	"github.com/invopop/jsonschema"

	"github.com/rondo-rl/rondo/events"
	"github.com/rondo-rl/rondo/events/runfile"
)

// generated is the schema of a type, made from its Go payload.
func generated(t events.Type) ([]byte, error) {
	r := jsonschema.Reflector{Anonymous: true, DoNotReference: true, Mapper: mapped}
	schema := r.Reflect(events.Payload(t))
	schema.Title = string(t)
	if t != events.RunOpenedType {
		sentAlone(schema)
	}
	data, err := json.MarshalIndent(schema, "", "  ")
	return append(data, '\n'), err
}

// sentAlone lets a turn's sampling leave out what was not sent, which a run has to say as null.
func sentAlone(schema *jsonschema.Schema) {
	for pair := schema.Properties.Oldest(); pair != nil; pair = pair.Next() {
		property := pair.Value
		if property.Items != nil {
			property = property.Items
		}
		if property.Properties == nil {
			continue
		}
		if pair.Key == "sampling" {
			property.Required = slices.DeleteFunc(property.Required, func(key string) bool {
				field, _ := property.Properties.Get(key)
				return slices.ContainsFunc(field.OneOf, func(s *jsonschema.Schema) bool { return s.Type == "null" })
			})
		}
		sentAlone(property)
	}
}

// mapped spells the types that read and write as text.
func mapped(t reflect.Type) *jsonschema.Schema {
	switch t {
	case reflect.TypeFor[runfile.Size]():
		return &jsonschema.Schema{Type: "string", Pattern: `^[0-9]+([KMGT]iB)?$`,
			Description: "a number of bytes, for example 8GiB"}
	case reflect.TypeFor[runfile.InFlight]():
		return &jsonschema.Schema{OneOf: []*jsonschema.Schema{{Type: "integer"}, {Const: "auto"}}}
	case reflect.TypeFor[runfile.Duration]():
		return &jsonschema.Schema{Type: "string", Pattern: `^-?([0-9.]+(ns|us|µs|ms|s|m|h))+$`,
			Description: "a duration: a number with a unit, for example 90s"}
	}
	return nil
}
