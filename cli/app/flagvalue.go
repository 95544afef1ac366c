package app

import (
	"fmt"
	"slices"
	"strings"

	"github.com/spf13/cobra"
	"github.com/spf13/pflag"
)

// text is the value of a flag that takes a text. A flag takes the next word whatever it is, so `--listen --help` would listen at "--help".
type text struct{ pflag.Value }

func (t text) Set(value string) error {
	if strings.HasPrefix(value, "--") {
		return fmt.Errorf("%.80q is a flag and no value: give the value first", value)
	}
	return t.Value.Set(value)
}

// takeNoFlags lets the flags that take texts refuse a flag as their value, for a command and those below it.
func takeNoFlags(cmd *cobra.Command) {
	refuse := func(f *pflag.Flag) {
		_, done := f.Value.(text)
		if !done && slices.Contains([]string{"string", "stringArray", "stringSlice"}, f.Value.Type()) {
			f.Value = text{f.Value}
		}
	}
	cmd.Flags().VisitAll(refuse)
	cmd.PersistentFlags().VisitAll(refuse)
	for _, sub := range cmd.Commands() {
		takeNoFlags(sub)
	}
}
