// Package wording says what is wrong with a text in the words of JSON and YAML. The decoders say it
// in those of Go's types, which nobody knows who wrote the text.
package wording

import (
	"encoding/json"
	"errors"
	"fmt"
	"reflect"
	"slices"
	"strings"

	"github.com/goccy/go-yaml"
)

// Plain is an error whose text names no types of Go. What it wraps stays.
func Plain(err error) error {
	var fromJSON *json.UnmarshalTypeError
	var fromYAML *yaml.TypeError
	var tooLarge *yaml.OverflowError
	switch {
	case errors.As(err, &fromJSON):
		return Reworded(err, fromJSON.Error(), typeInJSON(fromJSON))
	case errors.As(err, &fromYAML):
		words := fmt.Sprintf("must be %s, got %s", kindOf(fromYAML.DstType), kindOf(fromYAML.SrcType))
		return Reworded(err, fromYAML.GetMessage(), words)
	case errors.As(err, &tooLarge):
		words := fmt.Sprintf("must be %s of its range, got %s", kindOf(tooLarge.DstType), tooLarge.SrcNum)
		return Reworded(err, tooLarge.GetMessage(), words)
	case err != nil && strings.Contains(err.Error(), "json: "): // one of an unknown field has no type
		return Reworded(err, "json: ", "")
	}
	return err
}

// Args are those of a format, of which the errors are Plain.
func Args(args []any) []any {
	args = slices.Clone(args)
	for i, arg := range args {
		if err, ok := arg.(error); ok {
			args[i] = Plain(err)
		}
	}
	return args
}

// typeInJSON says which value has a type that its field has not.
func typeInJSON(e *json.UnmarshalTypeError) string {
	got, number, numeric := strings.Cut(e.Value, " ")
	switch {
	case numeric && got == "number":
		got = number
	case got == "bool":
		got = "a boolean"
	case got == "object" || got == "array":
		got = "an " + got
	default:
		got = "a " + got
	}
	want := "must be " + kindOf(e.Type)
	if numeric && whole(e.Type.Kind()) && strings.Trim(number, "-0123456789") == "" {
		want += " of its range"
	}
	if e.Field == "" {
		return "the value " + want + ", got " + got
	}
	return "`" + e.Field + "` " + want + ", got " + got
}

func whole(k reflect.Kind) bool { return k >= reflect.Int && k <= reflect.Uint64 }

// kindOf names a type of Go as JSON does.
func kindOf(t reflect.Type) string {
	if t == nil {
		return "null"
	}
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch k := t.Kind(); {
	case whole(k):
		return "an integer"
	case k == reflect.Float32 || k == reflect.Float64:
		return "a number"
	case k == reflect.Bool:
		return "a boolean"
	case k == reflect.String:
		return "a string"
	case k == reflect.Slice || k == reflect.Array:
		return "an array"
	case k == reflect.Map || k == reflect.Struct:
		return "an object"
	}
	return "another value"
}

// Reworded is an error with some of its words replaced.
func Reworded(err error, words, by string) error {
	return &plain{strings.Replace(err.Error(), words, by, 1), err}
}

type plain struct {
	text string
	err  error
}

func (p *plain) Error() string { return p.text }
func (p *plain) Unwrap() error { return p.err }
