package sandbox

import (
	"context"
	"maps"
	"strings"
)

// Toolchains resolves several toolchains by name into mounts and environment,
// as Toolchain does for one.
func Toolchains(ctx context.Context, names []string, cacheDir string) ([]Mount, map[string]string, error) {
	var mounts []Mount
	env := map[string]string{}
	for _, name := range names {
		m, e, err := Toolchain(ctx, name, cacheDir)
		if err != nil {
			return nil, nil, err
		}
		mounts = append(mounts, m...)
		path := joinPaths(e["PATH"], env["PATH"])
		maps.Copy(env, e)
		if path != "" {
			env["PATH"] = path
		}
	}
	return mounts, env, nil
}

// joinPaths puts the folders of a tool chain before those of the tool
// chains before it; "" for none.
func joinPaths(own, before string) string {
	if before == "" {
		return own
	}
	return strings.TrimSuffix(own, DefaultPath) + before
}
