package app

import (
	"io"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

func TestFlagsAreNoValues(t *testing.T) {
	const refused = `"--help" is a flag and no value: give the value first: see `
	for name, c := range map[string]struct {
		args []string
		want string // the text of the error
	}{
		"a text": {[]string{"noun", "--listen", "--help"}, refused + "`rondo noun --help`"},
		"a list": {[]string{"noun", "--allow", "a", "--allow", "--help"},
			refused + "`rondo noun --help`"},
		"a flag of every noun": {[]string{"noun", "--nats", "--help"}, refused + "`rondo noun --help`"},
		"behind an equal sign": {[]string{"noun", "--listen=--help"}, refused + "`rondo noun --help`"},
		"a value":              {[]string{"noun", "--listen", "-", "--allow", "-x", "--allow", "a--b"}, ""},
	} {
		t.Run(name, func(t *testing.T) {
			var listen string
			var allow []string
			ran := false
			root := New(func(*Global) *cobra.Command {
				cmd := &cobra.Command{Use: "noun", RunE: func(*cobra.Command,
					[]string) error {
					ran = true
					return nil
				}}
				cmd.Flags().StringVar(&listen, "listen", "", "")
				cmd.Flags().StringArrayVar(&allow, "allow", nil, "")
				return cmd
			})
			root.SetArgs(c.args)
			root.SetOut(io.Discard)
			err := root.ExecuteContext(t.Context())
			if c.want != "" {
				if err == nil || !strings.Contains(err.Error(), c.want) || ran {
					t.Fatalf("error %v, want %q", err, c.want)
				}
				return
			}
			if err != nil || listen != "-" || !slices.Equal(allow, []string{"-x", "a--b"}) {
				t.Fatalf("%v, --listen %q, --allow %q", err, listen, allow)
			}
		})
	}
}

func TestEnvironmentIsNoFlag(t *testing.T) {
	t.Setenv("RONDO_STORE", "--json")
	root := New(func(*Global) *cobra.Command {
		return &cobra.Command{Use: "noun", RunE: func(*cobra.Command, []string) error { return nil }}
	})
	root.SetArgs([]string{"noun"})
	root.SetOut(io.Discard)
	if err := root.ExecuteContext(t.Context()); err == nil ||
		!strings.Contains(err.Error(), `--store from the environment`) {
		t.Fatalf("error %v", err)
	}
}
