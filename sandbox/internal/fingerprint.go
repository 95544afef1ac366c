// Package internal tells builds of a sandbox's first process apart.
package internal

import (
	"crypto/sha256"
	"embed"
	"encoding/hex"
	"fmt"
	"io/fs"
	"runtime"
	"runtime/debug"
	"slices"
	"sync"
)

// sources are those of the first process: what two programs have in common
// that were built of the same.
//
//go:embed agent archive jail wire
var sources embed.FS

// Ask is the argument with which a program is asked for its fingerprint.
const Ask = "fingerprint"

// Libraries are what the first process has of others.
var Libraries = []string{"github.com/klauspost/compress", "golang.org/x/net", "golang.org/x/sys"}

// Fingerprint is equal in two programs where they would be the same first process: of
// the same sources, libraries and version of Go. A sandbox must not be sealed by an
// older one than its owner has.
var Fingerprint = sync.OnceValue(func() string {
	sum := sha256.New()
	fmt.Fprintln(sum, runtime.Version(), runtime.GOARCH)
	if info, ok := debug.ReadBuildInfo(); ok {
		for _, library := range info.Deps {
			for ; library.Replace != nil; library = library.Replace {
			}
			if slices.Contains(Libraries, library.Path) {
				fmt.Fprintln(sum, library.Path, library.Version, library.Sum)
			}
		}
	}
	_ = fs.WalkDir(sources, ".", func(name string, entry fs.DirEntry, err error) error { // embedded files can be read
		if err != nil || entry.IsDir() {
			return err
		}
		data, err := sources.ReadFile(name)
		fmt.Fprintln(sum, name, len(data))
		sum.Write(data)
		return err
	})
	return hex.EncodeToString(sum.Sum(nil))
})
