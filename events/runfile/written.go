package runfile

import (
	"encoding"
	"encoding/json"
	"errors"
	"fmt"
	"maps"
	"reflect"
	"slices"
	"strconv"
	"strings"
)

// CheckWritten refuses a key of a run file, or of the configuration in a run.opened, that is
// written with an empty value (0, "", an empty list, null) where a key that is left out means
// another: the empty value would be taken for the default in silence. The tag `absent` of a field
// says what leaving its key out means. v has the type of the document, and the defaults.
func CheckWritten(document, v any) error {
	return checkWritten(document, reflect.Indirect(reflect.ValueOf(v)), "", "")
}

func checkWritten(written any, v reflect.Value, at, absent string) error {
	if absent != "" && (written == nil || empty(written, v.Type())) {
		return fmt.Errorf("%s %s: an empty value would not count; leave the key out for %s", at, text(written), absent)
	}
	if written == nil && at == "" {
		return errors.New("it is empty")
	}
	if written == nil && v.Kind() != reflect.Pointer && !v.IsZero() {
		return fmt.Errorf("%s: it has no value; leave the key out for the default", at)
	}
	switch written := written.(type) {
	case map[string]any:
		t := v.Type()
		for t.Kind() == reflect.Pointer {
			v, t = reflect.Zero(t.Elem()), t.Elem()
		}
		if t.Kind() != reflect.Struct {
			return nil
		}
		for _, name := range slices.Sorted(maps.Keys(written)) {
			if field, absent := keyOf(v, name); field.IsValid() {
				if err := checkWritten(written[name], field, strings.TrimPrefix(at+"."+name, "."), absent); err != nil {
					return err
				}
			}
		}
	case []any:
		if v.Kind() != reflect.Slice {
			return nil
		}
		for i, each := range written {
			if err := checkWritten(each, reflect.Zero(v.Type().Elem()), fmt.Sprintf("%s.%d", at, i), ""); err != nil {
				return err
			}
		}
	}
	return nil
}

// keyOf is the field that holds a key, and what leaving that out means.
func keyOf(v reflect.Value, key string) (field reflect.Value, absent string) {
	for i := range v.NumField() {
		f := v.Type().Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("yaml"), ",")
		switch {
		case options == "inline":
			if field, absent = keyOf(v.Field(i), key); field.IsValid() {
				return field, absent
			}
		case name == key:
			return v.Field(i), f.Tag.Get("absent")
		}
	}
	return reflect.Value{}, ""
}

// empty reports whether a value as it is written is the zero one of its type.
func empty(written any, t reflect.Type) bool {
	v := reflect.ValueOf(written)
	if v.Kind() == reflect.Slice || v.Kind() == reflect.Map {
		return v.Len() == 0
	}
	value := reflect.New(t)
	if read, ok := value.Interface().(encoding.TextUnmarshaler); ok {
		return read.UnmarshalText([]byte(fmt.Sprint(written))) == nil && value.Elem().IsZero()
	}
	if s, ok := written.(string); ok && t.Kind() != reflect.String {
		n, err := strconv.ParseFloat(s, 64)
		return err == nil && n == 0
	}
	return v.IsZero()
}

func text(written any) string {
	shown, err := json.Marshal(written)
	if err != nil {
		return fmt.Sprint(written)
	}
	return string(shown)
}
