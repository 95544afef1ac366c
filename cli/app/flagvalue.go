package app

import (
	"errors"
	"fmt"
	"strconv"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"

	"github.com/rondo-rl/rondo/wording"
)

// flagValue is the value of a flag in users' words: its kind, what is wrong with it, and no
// default where there is none.
type flagValue struct {
	pflag.Value
	kind string
	list bool // the flag may be repeated
}

// flagKinds are the kinds of values by the names that pflag has for them.
var flagKinds = map[string]flagValue{
	"string": {kind: "text"}, "stringArray": {kind: "text", list: true}, "stringSlice": {kind: "list", list: true},
	"int": {kind: wholeNumber}, "int64": {kind: wholeNumber}, "uint": {kind: wholeNumber},
	"uint64":   {kind: wholeNumber},
	"intSlice": {kind: "numbers", list: true}, "float64Slice": {kind: "numbers", list: true},
	"float64": {kind: "number"}, "duration": {kind: "duration"},
}

const wholeNumber = "integer"

// Type is the kind of value that help shows.
func (v flagValue) Type() string { return v.kind }

// Set refuses what is another flag: a flag takes the next word whatever it is, so `--listen --help`
// would listen at "--help".
func (v flagValue) Set(text string) error {
	if strings.HasPrefix(text, "--") {
		return fmt.Errorf("%.80q is a flag and no value: give the value first", text)
	}
	switch v.kind {
	case "duration":
		d, err := wording.ParseDuration(text)
		if err != nil {
			return err
		}
		return v.Value.Set(d.String())
	case wholeNumber, "number", "numbers":
		if err := v.Value.Set(text); err != nil {
			return errors.New("want " + map[string]string{wholeNumber: "a whole number", "number": "a number",
				"numbers": "numbers, as in 1,2,3"}[v.kind])
		}
		return nil
	}
	return v.Value.Set(text)
}

// Repeats reports whether a flag takes several values.
func Repeats(f *pflag.Flag) bool {
	v, _ := f.Value.(flagValue)
	return v.list
}

// wordFlags lets the flags of a command and of those below it take values in users' words.
func wordFlags(cmd *cobra.Command) {
	wrap := func(f *pflag.Flag) {
		v, found := flagKinds[f.Value.Type()]
		if !found {
			return
		}
		v.Value = f.Value
		f.Value = v
		if n, err := strconv.ParseFloat(f.DefValue, 64); v.kind == "number" && err == nil {
			f.DefValue = strconv.FormatFloat(n, 'f', -1, 64) // and no 8.589934592e+09
		}
		if f.DefValue == "[]" || f.DefValue == "0s" {
			f.DefValue = ""
		}
	}
	cmd.Flags().VisitAll(wrap)
	cmd.PersistentFlags().VisitAll(wrap)
	for _, sub := range cmd.Commands() {
		wordFlags(sub)
	}
}
