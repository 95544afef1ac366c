package tools

import (
	"errors"
	"strings"
	"sync"

	"github.com/santhosh-tekuri/jsonschema/v6"

	"github.com/rondo-rl/rondo/sandbox/toolset"
)

// described is what the tools have in common whose arguments a run's configuration describes.
type described struct {
	schema func() (*jsonschema.Schema, error) // compiled by the first call: most turns call few tools
}

// describe adds a schema to a definition.
func describe(d *Definition, arguments toolset.Arguments) (t described, err error) {
	t.schema = sync.OnceValues(arguments.Schema)
	d.Parameters, err = arguments.Document()
	return t, err
}

// refused says why arguments are not what the tool takes, nil where they are.
func (t described) refused(arguments string) (*observation, error) {
	schema, err := t.schema()
	if err != nil {
		return nil, err
	}
	given, err := jsonschema.UnmarshalJSON(strings.NewReader(arguments))
	if err != nil {
		why := refusal("the arguments are not JSON: %v", err)
		return &why, nil
	}
	err = schema.Validate(given)
	var wrong *jsonschema.ValidationError
	if !errors.As(err, &wrong) {
		return nil, err
	}
	why := refusal("%s", unfit(wrong, given))
	return &why, nil
}
