package tools

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"slices"
	"strconv"
	"strings"
)

// Parsers of some engines write every argument as a text, or the whole object as one. What a call
// means is read with the schema that the model was shown: what can mean one thing only becomes
// that, and anything else is refused in the schema's words.

const (
	maxQuoted     = 3  // texts around an object of arguments
	maxReferences = 16 // that lead to one another in a schema
	maxWrong      = 8  // things that are wrong with a call, as the model is told
	maxShown      = 80 // bytes of a value that is wrong
)

// repairCalls are calls with the arguments that their tools' schemas let them mean.
func (s *Set) repairCalls(calls []Call) []Call {
	calls = slices.Clone(calls)
	for i := range calls {
		if t := s.lookup(calls[i].Name); t != nil && len(calls[i].Arguments) <= MaxArguments && i < MaxCalls {
			calls[i].Arguments, calls[i].refused = t.repair(calls[i].Arguments)
		}
	}
	return calls
}

// repair gives arguments as the schema has them, or why they are none of the tool's. What is no
// JSON, and what a schema of a run's own takes too long for, stays as it is.
func (t *tool) repair(arguments string) (fitting, refused string) {
	if t.key == "" && !checkable(t.schema, arguments) {
		return arguments, ""
	}
	given, changed, err := unquoted(arguments)
	if err != nil {
		return arguments, ""
	}
	if name := givenTwice(arguments); name != "" {
		return arguments, fmt.Sprintf("%s is given twice", called(name))
	}
	if given == nil { // as of a call without arguments
		given, changed = map[string]any{}, true
	}
	f := fit{root: t.schema, changed: changed}
	object, ok := given.(map[string]any)
	if !ok {
		f.must("", "object", given)
	} else {
		given = f.object(t.schema, object, "")
	}
	switch {
	case len(f.wrong) > 0:
		return arguments, faultText(f.wrong)
	case !f.changed:
		return arguments, ""
	}
	var out bytes.Buffer
	encoder := json.NewEncoder(&out)
	encoder.SetEscapeHTML(false)
	if encoder.Encode(given) != nil || out.Len() > MaxArguments {
		return arguments, ""
	}
	return strings.TrimSuffix(out.String(), "\n"), ""
}

// givenTwice is the first argument that an object has twice, "" for none. Decoders take the last of
// them, whatever the model meant.
func givenTwice(arguments string) string {
	decoder := json.NewDecoder(strings.NewReader(orEmpty(arguments)))
	if begin, err := decoder.Token(); err != nil || begin != json.Delim('{') {
		return ""
	}
	seen := map[string]bool{}
	for decoder.More() {
		key, err := decoder.Token()
		name, _ := key.(string)
		if seen[name] {
			return name
		}
		seen[name] = true
		var value json.RawMessage
		if err != nil || decoder.Decode(&value) != nil {
			return ""
		}
	}
	return ""
}

// faultText is what is wrong with a call, as much as helps.
func faultText(wrong []string) string {
	if more := len(wrong) - maxWrong; more > 0 {
		wrong = append(slices.Clone(wrong[:maxWrong]), fmt.Sprintf("and %d more", more))
	}
	return strings.Join(wrong, "; ")
}

// unquoted reads arguments that may be a text in a text.
func unquoted(arguments string) (given any, quoted bool, err error) {
	for range maxQuoted {
		if given, err = valueOf(orEmpty(arguments)); err != nil {
			return given, quoted, err
		}
		text, isText := given.(string)
		inner, err := valueOf(orEmpty(text))
		if _, more := inner.(string); !isText || err != nil || !more && !isObject(inner) {
			return given, quoted, nil
		}
		arguments, quoted = text, true
	}
	return given, quoted, nil
}

func isObject(v any) bool {
	_, ok := v.(map[string]any)
	return ok
}

// valueOf reads one JSON value, its numbers as they are written.
func valueOf(text string) (v any, err error) {
	decoder := json.NewDecoder(strings.NewReader(text))
	decoder.UseNumber()
	if err := decoder.Decode(&v); err != nil {
		return nil, err
	}
	if _, err := decoder.Token(); err != io.EOF {
		return nil, errors.New("it goes on after its end")
	}
	return v, nil
}

// fit brings a value into the form of a schema.
type fit struct {
	root    map[string]any // for references
	changed bool
	wrong   []string // in the schema's words
}

// must notes a value of another type than the schema's.
func (f *fit) must(at, want string, got any) {
	f.wrong = append(f.wrong, fmt.Sprintf("%s must be %s, got %s", called(at), withArticle(want), valueText(got)))
}

// value gives what a value means by a schema. A schema that is not understood lets it be.
func (f *fit) value(schema, v any, at string) any {
	s, ok := f.resolved(schema)
	if !ok {
		return v
	}
	for _, part := range listOf(s["allOf"]) {
		v = f.value(part, v, at)
	}
	if options := slices.Concat(listOf(s["anyOf"]), listOf(s["oneOf"])); len(options) > 0 {
		v = f.either(options, v, at)
	}
	types := typesOf(s)
	if len(types) == 0 {
		v = f.member(s, v, at)
	} else {
		v = f.typed(s, types, v, at)
	}
	switch v := v.(type) {
	case map[string]any:
		return f.object(s, v, at)
	case []any:
		if _, tuple := s["prefixItems"]; !tuple && s["items"] != nil {
			for i := range v {
				v[i] = f.value(s["items"], v[i], fmt.Sprintf("%s[%d]", at, i))
			}
		}
	}
	return v
}

// resolved is a schema behind its references.
func (f *fit) resolved(schema any) (map[string]any, bool) {
	for range maxReferences {
		s, ok := schema.(map[string]any)
		reference, refers := s["$ref"].(string)
		if !ok || !refers {
			return s, ok
		}
		if schema, ok = pointed(f.root, reference); !ok {
			return nil, false
		}
	}
	return nil, false
}

// either takes what fits one of several schemas as it is, else what all of those that it can
// be made to fit make of it.
func (f *fit) either(options []any, v any, at string) any {
	var made []any
	var changes bool
	for _, option := range options {
		try := fit{root: f.root}
		got := try.value(option, copied(v), at)
		if len(try.wrong) > 0 {
			continue
		}
		if !try.changed {
			return v
		}
		made, changes = append(made, got), true
	}
	if !changes || slices.ContainsFunc(made, func(other any) bool { return encoded(other) != encoded(made[0]) }) {
		f.wrong = append(f.wrong, fmt.Sprintf("%s must be %s, got %s", called(at),
			f.alternatives(options), valueText(v)))
		return v
	}
	f.changed = true
	return made[0]
}

// alternatives names what several schemas take.
func (f *fit) alternatives(options []any) string {
	var names []string
	for _, option := range options {
		s, _ := f.resolved(option)
		for _, name := range typesOf(s) {
			names = append(names, withArticle(name))
		}
	}
	if len(names) == 0 {
		return "one of what its schema names"
	}
	slices.Sort(names)
	return strings.Join(slices.Compact(names), " or ")
}

// member is a value of a list without types, found by its text.
func (f *fit) member(s map[string]any, v any, at string) any {
	values := listOf(s["enum"])
	if constant, ok := s["const"]; ok {
		values = []any{constant}
	}
	text, isText := v.(string)
	if len(values) == 0 || slices.ContainsFunc(values, func(one any) bool { return encoded(one) == encoded(v) }) {
		return v
	}
	for _, one := range values {
		if isText && encoded(one) == strings.TrimSpace(text) {
			f.changed = true
			return one
		}
	}
	f.wrong = append(f.wrong, fmt.Sprintf("%s must be one of %s, got %s", called(at), valueText(values), valueText(v)))
	return v
}

// typed is a value of one of some types: as it is, or what it can mean alone.
func (f *fit) typed(s map[string]any, types []string, v any, at string) any {
	if slices.ContainsFunc(types, func(t string) bool { return isOf(t, v) }) {
		if whole, ok := wholeNumber(v); ok && !slices.Contains(types, "number") && whole != v {
			f.changed = true
			return whole
		}
		return v
	}
	var made []any
	for _, t := range types {
		if got, ok := f.converted(s, t, v); ok {
			made = append(made, got)
		}
	}
	if len(made) == 0 || slices.ContainsFunc(made, func(other any) bool { return encoded(other) != encoded(made[0]) }) {
		f.must(at, strings.Join(types, " or "), v)
		return v
	}
	f.changed = true
	return made[0]
}

// converted is what a value of another type means as one of a type, where that is one thing.
func (f *fit) converted(s map[string]any, to string, v any) (any, bool) {
	text, isText := v.(string)
	text = strings.TrimSpace(text)
	var inside any
	if isText {
		inside, _ = valueOf(text)
	}
	switch to {
	case "integer":
		if number, ok := inside.(json.Number); ok {
			return wholeNumber(number)
		}
	case "number":
		number, ok := inside.(json.Number)
		return number, ok
	case "boolean":
		if number, ok := v.(json.Number); ok {
			text = number.String()
		}
		switch strings.ToLower(text) {
		case "true", "1":
			return true, true
		case "false", "0":
			return false, true
		}
	case "string":
		switch v := v.(type) {
		case json.Number:
			return v.String(), true
		case bool:
			return strconv.FormatBool(v), true
		}
	case "null":
		return nil, isText && (text == "null" || text == "None")
	case "object":
		return inside, isObject(inside)
	case "array":
		return f.listed(s, v, text, inside)
	}
	return nil, false
}

// listed is a list that was written as a text, or the one entry that stands for a list of it.
func (f *fit) listed(s map[string]any, v any, text string, inside any) (any, bool) {
	if list, ok := inside.([]any); ok {
		return list, true
	}
	if isObject(inside) && isOf("string", v) {
		v = inside
	}
	if _, isText := v.(string); v == nil || isText && (text == "" || text[0] == '[' || text[0] == '{') {
		return nil, false
	}
	items, ok := f.resolved(s["items"])
	if !ok {
		return []any{v}, s["items"] == nil
	}
	return []any{v}, slices.ContainsFunc(typesOf(items), func(t string) bool {
		if t == "array" { // one entry does not say how deep it lies
			return false
		}
		_, means := f.converted(items, t, v)
		return means || isOf(t, v)
	})
}

// object is an object whose fields fit. One that is null where the schema has no null is left out.
func (f *fit) object(s map[string]any, given map[string]any, at string) map[string]any {
	properties, _ := s["properties"].(map[string]any)
	patterns, _ := s["patternProperties"].(map[string]any)
	for _, name := range slices.Sorted(maps.Keys(given)) {
		schema, known := properties[name]
		if !known && len(patterns) == 0 && s["additionalProperties"] == false {
			same, ok := alike(properties, given, name)
			if !ok {
				f.wrong = append(f.wrong, unknown(at, name, properties))
				continue
			}
			given[same], schema, f.changed = given[name], properties[same], true
			delete(given, name)
			name = same
		} else if !known && len(patterns) == 0 {
			schema = s["additionalProperties"]
		}
		within := name
		if at != "" {
			within = at + "." + name
		}
		try := fit{root: f.root}
		value := try.value(schema, given[name], within)
		optional := !slices.Contains(listOf(s["required"]), any(name))
		if odd := len(try.wrong) > 0; given[name] == nil && odd ||
			isNull(given[name]) && optional && (odd || try.changed) {
			delete(given, name)
			f.changed = true
			continue
		}
		given[name], f.changed, f.wrong = value, f.changed || try.changed, append(f.wrong, try.wrong...)
	}
	return given
}

// isNull reports whether a value is null, or one of its texts.
func isNull(v any) bool { return v == nil || v == "null" || v == "None" }

// alike is the one argument whose name differs in the case of letters alone.
func alike(properties, given map[string]any, name string) (same string, ok bool) {
	for other := range properties {
		if !strings.EqualFold(other, name) {
			continue
		}
		if _, taken := given[other]; taken || same != "" {
			return "", false
		}
		same = other
	}
	return same, same != ""
}

// unknown says which names there are.
func unknown(at, name string, properties map[string]any) string {
	known := make([]string, 0, len(properties))
	for _, one := range slices.Sorted(maps.Keys(properties)) {
		known = append(known, "`"+cutText(one)+"`")
	}
	place := "the arguments"
	if at != "" {
		place = "the fields of " + called(at)
	}
	if len(known) == 0 {
		return fmt.Sprintf("there is no `%s`; %s are none", cutText(name), place)
	}
	return fmt.Sprintf("there is no `%s`; %s are %s", cutText(name), place, strings.Join(known, ", "))
}
