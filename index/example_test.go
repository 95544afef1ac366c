package index_test

import (
	"context"
	"fmt"
	"log"
	"os"
	"path/filepath"

	"github.com/rondo-rl/rondo/index/embed"
	"github.com/rondo-rl/rondo/index/seal"
	"github.com/rondo-rl/rondo/index/update"
	"github.com/rondo-rl/rondo/storage/dir"
)

// A folder is indexed, sealed with a key, and asked.
func Example() {
	ctx := context.Background()
	place, err := os.MkdirTemp("", "index")
	if err != nil {
		log.Fatal(err)
	}
	defer os.RemoveAll(place)
	code := filepath.Join(place, "code")
	if err := os.Mkdir(code, 0o755); err != nil {
		log.Fatal(err)
	}
	for name, text := range map[string]string{
		"session.go": "package shop\n\n// removeExpired deletes sessions whose time is over.\nfunc removeExpired() {}\n",
		"mail.go":    "package shop\n\n// sendInvoice mails an invoice to the customer.\nfunc sendInvoice() {}\n",
	} {
		if err := os.WriteFile(filepath.Join(code, name), []byte(text), 0o644); err != nil {
			log.Fatal(err)
		}
	}
	store, err := dir.Open(filepath.Join(place, "store"))
	if err != nil {
		log.Fatal(err)
	}
	defer store.Close()

	folder := update.Folder{
		Index: update.Index{Store: store, Keys: seal.New(seal.Key{1}), Repo: "shop", Embedder: embed.Static()},
		Dir:   code, StateFile: filepath.Join(place, "state"),
	}
	state, err := folder.Sync(ctx, nil)
	if err != nil {
		log.Fatal(err)
	}
	base, err := folder.Load(ctx)
	if err != nil {
		log.Fatal(err)
	}
	hits, err := folder.Ask(ctx, base, "Where are expired sessions deleted?", "", 1)
	if err != nil {
		log.Fatal(err)
	}
	fmt.Println(state.Files, "files:", hits[0].Path, hits[0].Symbol)
	// Output:
	// 2 files: session.go removeExpired
}
