// Command helm checks a chart with Helm's own libraries, and prints the objects that it
// renders as a JSON array:
//
//	helm -namespace rondo -values one.yaml -values two.yaml -crds FOLDER deploy/helm/rondo
//
// It lints the chart, renders it, and decodes each object strictly into the Go type of its kind, so
// that a field that Kubernetes does not have, or that has another type there, fails. A kind of KEDA
// is checked against the CustomResourceDefinition in the folder. Charts that the chart depends on
// are rendered, too, where they are in its charts/.
package main

import (
	"encoding/json"
	"errors"
	"flag"
	"fmt"
	"io"
	"os"
	"path"
	"slices"
	"strings"

	"helm.sh/helm/v3/pkg/chart/loader"
	"helm.sh/helm/v3/pkg/chartutil"
	"helm.sh/helm/v3/pkg/engine"
	"helm.sh/helm/v3/pkg/lint"
	"helm.sh/helm/v3/pkg/lint/support"
	"helm.sh/helm/v3/pkg/releaseutil"
	"sigs.k8s.io/yaml"
)

// kubernetes is the version that the chart is checked for: the oldest that it takes.
const kubernetes = "v1.33.0"

// files are the files of a flag that may be repeated.
type files []string

func (f *files) String() string         { return strings.Join(*f, ",") }
func (f *files) Set(value string) error { *f = append(*f, value); return nil }

func main() {
	var values files
	flag.Var(&values, "values", "file of values; may be repeated")
	namespace := flag.String("namespace", "rondo", "namespace of the release")
	release := flag.String("release", "rondo", "name of the release")
	crds := flag.String("crds", "", "folder of CustomResourceDefinitions")
	flag.Parse()
	if flag.NArg() != 1 {
		fmt.Fprintln(os.Stderr, "use: helm [flags] CHART")
		os.Exit(2)
	}
	if err := run(os.Stdout, flag.Arg(0), *release, *namespace, *crds, values); err != nil {
		fmt.Fprintln(os.Stderr, err)
		os.Exit(1)
	}
}

func run(out io.Writer, chart, release, namespace, crds string, files []string) error {
	values := map[string]any{}
	for _, file := range files {
		more, err := chartutil.ReadValuesFile(file)
		if err != nil {
			return fmt.Errorf("%s: %w", file, err)
		}
		values = chartutil.CoalesceTables(more, values)
	}
	version, err := chartutil.ParseKubeVersion(kubernetes)
	if err != nil {
		return err
	}
	if err := check(chart, values, namespace, version); err != nil {
		return err
	}
	documents, err := render(chart, values, release, namespace, version)
	if err != nil {
		return err
	}
	known, err := readKinds(crds)
	if err != nil {
		return err
	}
	objects := []json.RawMessage{}
	var wrong []error
	for _, document := range documents {
		object, err := yaml.YAMLToJSONStrict([]byte(document))
		if err == nil {
			err = known.check(object)
		}
		if err != nil {
			wrong = append(wrong, fmt.Errorf("%w in\n%s", err, document))
			continue
		}
		objects = append(objects, object)
	}
	if len(wrong) > 0 {
		return errors.Join(wrong...)
	}
	return json.NewEncoder(out).Encode(objects)
}

// check lints the chart. A chart that it depends on may be missing, as it is not kept here.
func check(chart string, values map[string]any, namespace string, version *chartutil.KubeVersion) error {
	var wrong []error
	for _, m := range lint.AllWithKubeVersion(chart, values, namespace, version).Messages {
		if m.Severity >= support.WarningSev &&
			!strings.Contains(m.Error(), "chart directory is missing these dependencies") {
			wrong = append(wrong, m)
		}
	}
	return errors.Join(wrong...)
}

// render makes the chart's objects, one document each, in the order of their files.
func render(folder string, values map[string]any, release, namespace string,
	version *chartutil.KubeVersion) ([]string, error) {
	chart, err := loader.Load(folder)
	if err != nil {
		return nil, err
	}
	if err := chartutil.ProcessDependenciesWithMerge(chart, values); err != nil {
		return nil, err
	}
	capabilities := chartutil.DefaultCapabilities.Copy()
	capabilities.KubeVersion = *version
	rendered, err := chartutil.ToRenderValues(chart, values,
		chartutil.ReleaseOptions{Name: release, Namespace: namespace, Revision: 1, IsInstall: true}, capabilities)
	if err != nil {
		return nil, err
	}
	texts, err := engine.Render(chart, rendered)
	if err != nil {
		return nil, err
	}
	var names []string
	for name := range texts {
		if path.Base(name) != "NOTES.txt" {
			names = append(names, name)
		}
	}
	slices.Sort(names)
	var documents []string
	for _, name := range names {
		parts := releaseutil.SplitManifests(texts[name])
		for i := range len(parts) {
			documents = append(documents, parts[fmt.Sprintf("manifest-%d", i)])
		}
	}
	return documents, nil
}
