package yamltext

import (
	"cmp"
	"encoding"
	"errors"
	"fmt"
	"maps"
	"math"
	"reflect"
	"slices"
	"strconv"
	"strings"

	"github.com/goccy/go-yaml"
	"github.com/goccy/go-yaml/lexer"
	"github.com/goccy/go-yaml/token"

	"github.com/rondo-rl/rondo/wording"
)

// Strict is Unmarshal and CheckScalars for a file of settings, in which a key that
// nothing reads is an error, too.
func Strict(text []byte, v any) error {
	err := Unmarshal(text, v, yaml.Strict())
	if unknown := (*yaml.UnknownFieldError)(nil); errors.As(err, &unknown) {
		return wording.Reworded(err, unknown.GetMessage(),
			unknown.GetMessage()+suggestion(text, reflect.TypeOf(v), unknown.GetToken().Value))
	}
	if err != nil {
		return err
	}
	return CheckScalars(text, v)
}

// suggestion ends the sentence about a key that nothing reads with the one that is near
// to it in the same mapping.
func suggestion(text []byte, t reflect.Type, key string) string {
	var written any
	if Unmarshal(text, &written) != nil {
		return ""
	}
	return wording.Suggestion(key, besides(written, t, key))
}

// besides are the keys that are known where a text has one that is not: nil where the
// text does not have that.
func besides(value any, t reflect.Type, key string) []string {
	for t.Kind() == reflect.Pointer {
		t = t.Elem()
	}
	switch value := value.(type) {
	case map[string]any:
		if _, here := value[key]; here && t.Kind() == reflect.Struct && typeOf(t, key) == nil {
			return keysOf(t)
		}
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if inner := typeOf(t, name); inner != nil {
				if known := besides(value[name], inner, key); known != nil {
					return known
				}
			}
		}
	case []any:
		for _, each := range value {
			if t.Kind() != reflect.Slice {
				break
			}
			if known := besides(each, t.Elem(), key); known != nil {
				return known
			}
		}
	}
	return nil
}

// keysOf are those that a mapping of this type reads.
func keysOf(mapping reflect.Type) (keys []string) {
	for i := range mapping.NumField() {
		f := mapping.Field(i)
		switch key, options, _ := strings.Cut(f.Tag.Get("yaml"), ","); {
		case options == "inline":
			keys = append(keys, keysOf(f.Type)...)
		case key != "-":
			keys = append(keys, cmp.Or(key, strings.ToLower(f.Name)))
		}
	}
	return keys
}

// CheckScalars refuses a text of which v holds other values than are written: the decoder cuts 8.7
// to 8 for an integer, reads 010 as 8, and makes the text "1.1" of 1.10. The error does not show
// the value, which may be a key.
func CheckScalars(text []byte, v any) error {
	for _, t := range lexer.Tokenize(string(text)) {
		if t.Type == token.OctetIntegerType && !strings.HasPrefix(strings.TrimLeft(t.Value, "+-"), "0o") {
			return fmt.Errorf("line %d: a number that begins with 0 is octal: leave the 0 out, or put a text into quotes", t.Position.Line)
		}
	}
	var written any
	if err := Unmarshal(text, &written); err != nil {
		return err
	}
	return unchanged(written, reflect.TypeOf(v), "")
}

var (
	errWhole = errors.New("must be an integer, and is a fraction or too large")
	errText  = errors.New("must be a text: put it into quotes")
)

// readsText is a type that reads its own text.
var readsText = reflect.TypeFor[encoding.TextUnmarshaler]()

// unchanged refuses a value that a field of this type holds only in part.
func unchanged(value any, field reflect.Type, at string) error {
	for field.Kind() == reflect.Pointer {
		field = field.Elem()
	}
	if reflect.PointerTo(field).Implements(readsText) {
		return nil
	}
	whole := field.Kind() >= reflect.Int && field.Kind() <= reflect.Uint64
	switch value := value.(type) {
	case nil:
	case map[string]any:
		for _, name := range slices.Sorted(maps.Keys(value)) {
			if inner := typeOf(field, name); inner != nil {
				if err := unchanged(value[name], inner, strings.TrimPrefix(at+"."+name, ".")); err != nil {
					return err
				}
			}
		}
	case []any:
		for i, each := range value {
			if field.Kind() != reflect.Slice {
				break
			}
			if err := unchanged(each, field.Elem(), fmt.Sprintf("%s.%d", at, i)); err != nil {
				return err
			}
		}
	case string: // as the library reads 1e3
		if n, err := strconv.ParseFloat(value, 64); whole && err == nil && !exact(n) {
			return fmt.Errorf("%s: %w", at, errWhole)
		}
	case float64:
		if whole && !exact(value) {
			return fmt.Errorf("%s: %w", at, errWhole)
		}
		if field.Kind() == reflect.String {
			return fmt.Errorf("%s: %w", at, errText)
		}
	default:
		if field.Kind() == reflect.String {
			return fmt.Errorf("%s: %w", at, errText)
		}
	}
	return nil
}

// exact reports whether a number is an integer that no rounding has made.
func exact(n float64) bool { return n == math.Trunc(n) && math.Abs(n) < 1<<53 }

// typeOf is the type of what a mapping has under a name; nil where that may be anything.
func typeOf(mapping reflect.Type, name string) reflect.Type {
	switch mapping.Kind() {
	case reflect.Map:
		return mapping.Elem()
	case reflect.Struct:
	default:
		return nil
	}
	var inline []reflect.Type
	for i := range mapping.NumField() {
		f := mapping.Field(i)
		key, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		if options == "inline" {
			inline = append(inline, f.Type)
		} else if key == name || key == "" && strings.ToLower(f.Name) == name {
			return f.Type
		}
	}
	for _, each := range inline {
		if found := typeOf(each, name); found != nil {
			return found
		}
	}
	return nil
}
