package app

import (
	"io"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/spf13/cobra"
)

// TestListsInFiles: a list in the file gives a flag that may be repeated each of its values, in
// the place of its default.
func TestListsInFiles(t *testing.T) {
	var names []string
	var k []int
	root := New(func(*Global) *cobra.Command {
		cmd := &cobra.Command{Use: "noun", RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.Flags().StringArrayVar(&names, "names", []string{"default"}, "")
		cmd.Flags().IntSliceVar(&k, "k", []int{1}, "")
		return cmd
	})
	file := filepath.Join(t.TempDir(), "flags.yaml")
	if err := os.WriteFile(file, []byte("names: [a, 'b,c']\nk:\n  - 2\n  - 8\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	root.SetArgs([]string{"noun", "--config", file})
	root.SetOut(io.Discard)
	if err := root.ExecuteContext(t.Context()); err != nil {
		t.Fatal(err)
	}
	if !slices.Equal(names, []string{"a", "b,c"}) || !slices.Equal(k, []int{2, 8}) {
		t.Errorf("--names %q, --k %v", names, k)
	}
}

// TestUnknownCommands: a name that a group of commands does not have is an error, and
// not its help with success.
func TestUnknownCommands(t *testing.T) {
	group := func(*Global) *cobra.Command {
		cmd := &cobra.Command{Use: "group"}
		cmd.AddCommand(&cobra.Command{Use: "member", RunE: func(*cobra.Command, []string) error { return nil }})
		return cmd
	}
	for text, want := range map[string]string{"group member": "", "group": "",
		"group nobody": `unknown command "nobody" for "rondo group"`} {
		root := New(group)
		root.SetArgs(strings.Fields(text))
		root.SetOut(io.Discard)
		if err := root.Execute(); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}

// TestUnknownVariables: a misspelt variable is refused with the name that is meant; variables of
// tests, and those that Kubernetes sets for Services, are none of ours.
func TestUnknownVariables(t *testing.T) {
	noun := func(*Global) *cobra.Command {
		cmd := &cobra.Command{Use: "noun", RunE: func(*cobra.Command, []string) error { return nil }}
		cmd.Flags().Int("tool-slots", 1, "")
		return cmd
	}
	for variable, want := range map[string]string{
		"RONDO_TOOL_SLOT=3":     "did you mean RONDO_TOOL_SLOTS?",
		"RONDO_NATS_CRED=x":     "did you mean RONDO_NATS_CREDS?",
		"RONDO_STROE=":          "did you mean RONDO_STORE?",
		"RONDO_TOOLSLOTS=":      "did you mean RONDO_TOOL_SLOTS?",
		"RONDO_ENDPOINT_KEY=x":  "did you mean RONDO_ENDPOINT_API_KEY?",
		"RONDO_SOMETHING_ELSE=": "nothing of Rondo reads it; unset it",
		"RONDO_TOOL_SLOTS=3":    "", "RONDO_TEST_X=1": "", "RONDO_REQUIRE_ALL=1": "", "RONDO_CONFIG=": "",
		"RONDOS=1": "", "OTHER=1": "",
		"RONDO_GATEWAY_PORT_8790_TCP_ADDR=10.0.0.1": "nothing of Rondo reads it",
	} {
		err := CheckVariables(New(noun), []string{"PATH=/bin", variable})
		if (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", variable, err, want)
		}
	}
	links := []string{"RONDO_GATEWAY_SERVICE_HOST=10.0.0.1", "RONDO_GATEWAY_SERVICE_PORT=8790",
		"RONDO_GATEWAY_SERVICE_PORT_HTTP=8790", "RONDO_GATEWAY_PORT=tcp://10.0.0.1:8790",
		"RONDO_GATEWAY_PORT_8790_TCP_ADDR=10.0.0.1"}
	if err := CheckVariables(New(noun), links); err != nil {
		t.Error(err)
	}
	t.Setenv("RONDO_TOOL_SLOT", "3")
	root := New(noun)
	root.SetArgs([]string{"noun"})
	if err := root.Execute(); err == nil {
		t.Error("the program starts with a variable that nothing reads")
	}
}

// TestEmptyFlags: a flag whose default follows from something else refuses an empty value; one
// whose empty value means something takes it. An empty variable is none.
func TestEmptyFlags(t *testing.T) {
	for _, c := range []struct {
		args, variable, refused string
	}{
		{"noun --version 0", "", "--version"}, {"noun --feed=", "", "--feed"},
		{"noun --share 0", "", "leave the flag out for all"}, {"noun", "RONDO_FEED", ""},
		{"noun", "", ""}, {"noun --version 1 --feed x --share 0.5", "", ""}, {"noun --listen=", "", ""},
		{"noun --keep 0", "", ""},
	} {
		root := New(func(*Global) *cobra.Command {
			cmd := &cobra.Command{Use: "noun", RunE: func(*cobra.Command, []string) error { return nil }}
			cmd.Flags().Int64("version", 0, "the version (default: the current one)")
			cmd.Flags().String("feed", "", "the feed (default: the run's first)")
			cmd.Flags().Float64("share", 0, "the share (default: all)")
			cmd.Flags().String("listen", "127.0.0.1:1", "address")
			cmd.Flags().Int("keep", 0, "how many are kept")
			return cmd
		})
		if c.variable != "" {
			t.Setenv(c.variable, "")
		}
		root.SetArgs(strings.Fields(c.args))
		if err := root.Execute(); (err != nil) != (c.refused != "") ||
			err != nil && !strings.Contains(err.Error(), c.refused) {
			t.Errorf("%s %s: %v, want %q", c.args, c.variable, err, c.refused)
		}
		if c.variable != "" {
			os.Unsetenv(c.variable)
		}
	}
}
