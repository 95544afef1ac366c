//go:build !unix

package commits

import "os"

// lockFile takes no lock: no sandbox runs on such a system.
func lockFile(*os.File) (bool, error) { return true, nil }
