package sandbox

import "github.com/rondo-rl/rondo/sandbox/internal/archive"

// Contents describes every path of an archive of Pack or Changes: a file's mode, size and SHA-256, a folder's mode, a link's target, or
// that a change deletes it. No data is an empty archive. Hostile archives are refused as Unpack refuses them.
func Contents(data []byte) (map[string]string, error) { return archive.Contents(data) }
