package tools

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
	"unicode/utf8"

	"github.com/santhosh-tekuri/jsonschema/v6"
	"github.com/santhosh-tekuri/jsonschema/v6/kind"
	"golang.org/x/text/language"
	"golang.org/x/text/message"
)

// called is the name of an argument in a sentence.
func called(at string) string {
	if at == "" {
		return "the arguments"
	}
	return "`" + cutText(at) + "`"
}

// withArticle is a type of JSON Schema, or several, in a sentence.
func withArticle(types string) string {
	names := strings.Split(types, " or ")
	for i, name := range names {
		switch {
		case name == "null":
		case strings.ContainsRune("aeiou", rune(name[0])):
			names[i] = "an " + name
		default:
			names[i] = "a " + name
		}
	}
	return strings.Join(names, " or ")
}

// valueText is a value in a sentence.
func valueText(v any) string {
	switch v := v.(type) {
	case []any:
		if len(v) == 0 {
			return "an empty array"
		}
	case map[string]any:
		return "an object"
	case string:
		return strconv.Quote(cutText(v))
	}
	return cutText(encoded(v))
}

// cutText is as much of a text as a sentence takes.
func cutText(text string) string {
	if len(text) <= maxShown {
		return text
	}
	end := maxShown
	for !utf8.RuneStart(text[end]) {
		end--
	}
	return text[:end] + "…"
}

var english = message.NewPrinter(language.English)

// unfit says in the schema's words why a value does not meet it.
func unfit(wrong *jsonschema.ValidationError, given any) string {
	var all []string
	var look func(*jsonschema.ValidationError)
	look = func(e *jsonschema.ValidationError) {
		for _, cause := range e.Causes {
			look(cause)
		}
		if len(e.Causes) == 0 {
			all = append(all, unmet(e, given))
		}
	}
	look(wrong)
	slices.Sort(all)
	return faultText(slices.Compact(all))
}

func unmet(e *jsonschema.ValidationError, given any) string {
	at, got := placeOf(e.InstanceLocation, given)
	switch k := e.ErrorKind.(type) {
	case *kind.Type:
		return fmt.Sprintf("%s must be %s, got %s", called(at),
			withArticle(strings.Join(k.Want, " or ")), valueText(got))
	case *kind.Enum:
		return fmt.Sprintf("%s must be one of %s, got %s", called(at),
			strings.Trim(encoded(k.Want), "[]"), valueText(got))
	case *kind.Minimum:
		return fmt.Sprintf("%s must be at least %s, got %s", called(at), k.Want.RatString(), valueText(got))
	case *kind.Maximum:
		return fmt.Sprintf("%s must be at most %s, got %s", called(at), k.Want.RatString(), valueText(got))
	case *kind.Required:
		for i, name := range k.Missing {
			if at != "" {
				name = at + "." + name
			}
			k.Missing[i] = called(name)
		}
		if len(k.Missing) == 1 {
			return k.Missing[0] + " is missing"
		}
		return strings.Join(k.Missing, ", ") + " are missing"
	}
	return fmt.Sprintf("%s: %s", called(at), e.ErrorKind.LocalizedString(english))
}

// placeOf names a place in a value, and gives what stands there.
func placeOf(location []string, v any) (at string, there any) {
	for _, step := range location {
		switch in := v.(type) {
		case []any:
			at += "[" + step + "]"
			if i, err := strconv.Atoi(step); err == nil && i >= 0 && i < len(in) {
				v = in[i]
			}
		case map[string]any:
			at = strings.TrimPrefix(at+"."+step, ".")
			v = in[step]
		}
	}
	return at, v
}
