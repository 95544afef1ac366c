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

// TestListsInFiles: a list in the file gives a flag that may be repeated each of its values, in the place of its default.
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

// TestUnknownCommands: a name that a group of commands does not have is an error, and not its help with success.
func TestUnknownCommands(t *testing.T) {
	group := func(*Global) *cobra.Command {
		cmd := &cobra.Command{Use: "group"}
		cmd.AddCommand(&cobra.Command{Use: "member", RunE: func(*cobra.Command, []string) error { return nil }})
		return cmd
	}
	for text, want := range map[string]string{"group member": "", "group": "", "group nobody": `unknown command "nobody" for "rondo group"`} {
		root := New(group)
		root.SetArgs(strings.Fields(text))
		root.SetOut(io.Discard)
		if err := root.Execute(); (err != nil) != (want != "") || err != nil && !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", text, err, want)
		}
	}
}
