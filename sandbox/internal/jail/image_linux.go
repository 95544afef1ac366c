package jail

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"slices"
)

// ownFolders of a sandbox are not taken from an image.
var ownFolders = []string{"proc", "dev", "sys", "tmp", "run", "logs", "root"}

// maxTopLevel bounds the mounts that an image causes.
const maxTopLevel = 64

// imageFolders lists what of an image's tree is seen, as absolute paths inside.
func imageFolders(root string) ([]string, error) {
	entries, err := os.ReadDir(root)
	if err != nil {
		return nil, fmt.Errorf("read the image: %w", err)
	}
	var folders []string
	for _, entry := range entries {
		if !slices.Contains(ownFolders, entry.Name()) {
			folders = append(folders, "/"+entry.Name())
		}
	}
	if len(folders) > maxTopLevel {
		return nil, fmt.Errorf("the image has %d entries at its top (limit %d)", len(folders), maxTopLevel)
	}
	return folders, nil
}

// imageHome is the home folder of an image's root user, where tools are often installed: it
// can be written to as well.
func imageHome(root string) (view, bool, error) {
	if root == "" {
		return view{}, false, nil
	}
	v, err := open(root+"/root", "/root")
	if errors.Is(err, fs.ErrNotExist) || err == nil && !v.isDir {
		return view{}, false, nil
	}
	v.lower = true
	return v, err == nil, err
}
