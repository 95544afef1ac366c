package index

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"strings"
	"time"

	"github.com/spf13/cobra"

	"github.com/rondo-rl/rondo/cli/app"
	"github.com/rondo-rl/rondo/cli/indexing"
	"github.com/rondo-rl/rondo/index/search"
	"github.com/rondo-rl/rondo/index/update"
)

// searchAnswer is what search answers.
type searchAnswer struct {
	Repo string `json:"repo"`
	// Root is the indexed tree; Stale says that the folder is another one by now.
	Root  string    `json:"root"`
	Stale bool      `json:"stale"`
	Hits  []codeHit `json:"hits"`
	MS    float64   `json:"ms"`
}

// codeHit is a hit with its text, as the folder has it now.
type codeHit struct {
	search.Hit
	// Changed: the file is another one than the indexed, so the lines may be others.
	Changed bool   `json:"changed,omitempty"`
	Text    string `json:"text"`
}

func newIndexSearch(g *app.Global) *cobra.Command {
	var s indexing.IndexSettings
	var within string
	limit := 10
	cmd := &cobra.Command{
		Use: "search DIR QUESTION", Short: "Find code by meaning", Args: cobra.ExactArgs(2),
		Long: `Search asks the index of a folder, by the question's words and by its meaning, and shows the lines from the folder itself. It says when the
folder has changed since it was indexed: rondo index sync DIR brings the index up to date.`,
		Example: `  rondo index search . "where are expired sessions removed?"
  rondo index search ~/src/shop "retry with backoff" --in lib/http --limit 5 --json`,
		RunE: func(cmd *cobra.Command, args []string) error {
			if limit < 1 || limit > search.MaxLimit {
				return fmt.Errorf("--limit %d: must be 1 to %d", limit, search.MaxLimit)
			}
			if strings.TrimSpace(args[1]) == "" {
				return errors.New("QUESTION is empty: ask something")
			}
			return s.Existing(cmd.Context(), g, args[0], func(f *update.Folder) error {
				answer, err := searchFolder(cmd.Context(), f, args[1], strings.Trim(within, "/"), limit)
				if err != nil {
					return err
				}
				return app.Show(cmd, g, answer, func(w io.Writer) error { return printHits(w, args[0], answer) })
			})
		},
	}
	s.AddFlags(cmd)
	cmd.Flags().StringVar(&within, "in", "", "search in this folder of the repository only")
	cmd.Flags().IntVar(&limit, "limit", limit, "how many parts to show")
	return cmd
}

func searchFolder(ctx context.Context, f *update.Folder, question, within string, limit int) (searchAnswer, error) {
	begin := time.Now()
	view, err := f.Current(ctx)
	if err != nil {
		return searchAnswer{}, err
	}
	if view.Root() == "" {
		return searchAnswer{}, fmt.Errorf("there is no index of %s under this key: `rondo index sync %s` makes it",
			f.Repo, f.Dir)
	}
	hits, err := f.Ask(ctx, view.Base, question, within, limit)
	if err != nil {
		return searchAnswer{}, err
	}
	if len(hits) == 0 && within != "" {
		return searchAnswer{},
			fmt.Errorf("--in %s: the index of %s has nothing in that folder; folders are named from the repository's root", within, f.Repo)
	}
	answer := searchAnswer{Repo: f.Repo, Root: view.Root(), Stale: view.Stale, Hits: []codeHit{}}
	root, err := os.OpenRoot(f.Dir)
	if err != nil {
		return answer, err
	}
	defer root.Close()
	for _, h := range hits {
		hit := codeHit{Hit: h}
		if hit.Changed, err = view.Changed(ctx, h.Path); err != nil {
			return answer, err
		}
		hit.Text = linesOf(root, h.Path, h.FirstLine, h.LastLine)
		answer.Hits = append(answer.Hits, hit)
	}
	answer.MS = float64(time.Since(begin)) / float64(time.Millisecond)
	return answer, nil
}

// linesOf reads lines of a file; "" where there are none any more.
func linesOf(root *os.Root, path string, first, last int) string {
	content, err := root.ReadFile(path)
	if err != nil {
		return ""
	}
	lines := bytes.SplitAfter(content, []byte("\n"))
	if first < 1 || first > len(lines) {
		return ""
	}
	return strings.ToValidUTF8(string(bytes.Join(lines[first-1:min(last, len(lines))], nil)), "\uFFFD")
}

// shownLines is how many lines of a part are printed.
const shownLines = 12

func printHits(w io.Writer, dir string, a searchAnswer) error {
	if len(a.Hits) == 0 {
		fmt.Fprintln(w, "nothing found")
	}
	for i, h := range a.Hits {
		if i > 0 {
			fmt.Fprintln(w)
		}
		note := ""
		if h.Changed {
			note = "  (changed since it was indexed)"
		}
		fmt.Fprintf(w, "%s:%d-%d  %.4f  %s%s\n", app.Clean(h.Path), h.FirstLine, h.LastLine, h.Score,
			app.Clean(h.Symbol), note)
		lines := strings.Split(strings.TrimRight(h.Text, "\n"), "\n")
		for n, line := range lines[:min(len(lines), shownLines)] {
			fmt.Fprintf(w, "%6d  %s\n", h.FirstLine+n, app.Clean(line))
		}
		if rest := len(lines) - shownLines; rest > 0 {
			fmt.Fprintf(w, "        … %d more lines\n", rest)
		}
	}
	if a.Stale {
		fmt.Fprintf(w, "\nthe folder has changed since it was indexed: rondo index sync %s\n", dir)
	}
	return nil
}
