package sandbox

import (
	"context"
	"maps"
)

// Toolchains resolves several toolchains by name into mounts and environment, as Toolchain does for one.
func Toolchains(ctx context.Context, names []string, cacheDir string) ([]Mount, map[string]string, error) {
	var mounts []Mount
	env := map[string]string{}
	for _, name := range names {
		m, e, err := Toolchain(ctx, name, cacheDir)
		if err != nil {
			return nil, nil, err
		}
		mounts = append(mounts, m...)
		maps.Copy(env, e)
	}
	return mounts, env, nil
}
