package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"

	monitoring "github.com/prometheus-operator/prometheus-operator/pkg/apis/monitoring/v1"
	"k8s.io/apiextensions-apiserver/pkg/apis/apiextensions"
	apiextensionsv1 "k8s.io/apiextensions-apiserver/pkg/apis/apiextensions/v1"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/schema/pruning"
	"k8s.io/apiextensions-apiserver/pkg/apiserver/validation"
	"k8s.io/apimachinery/pkg/runtime"
	kubernetesschema "k8s.io/apimachinery/pkg/runtime/schema"
	jsonserializer "k8s.io/apimachinery/pkg/runtime/serializer/json"
	"k8s.io/apimachinery/pkg/util/validation/field"
	"k8s.io/client-go/kubernetes/scheme"
	"sigs.k8s.io/yaml"
)

// kinds are those that objects can be checked as: Go types, and definitions by
// group, version and kind.
type kinds struct {
	types       *runtime.Scheme
	definitions map[kubernetesschema.GroupVersionKind]*apiextensions.JSONSchemaProps
}

// readKinds knows the kinds of Kubernetes, those of Prometheus' operator, and those that the
// files of a folder define.
func readKinds(folder string) (kinds, error) {
	k := kinds{types: runtime.NewScheme(),
		definitions: map[kubernetesschema.GroupVersionKind]*apiextensions.JSONSchemaProps{}}
	if err := errors.Join(scheme.AddToScheme(k.types), monitoring.AddToScheme(k.types)); err != nil || folder == "" {
		return k, err
	}
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if err != nil {
		return k, err
	}
	for _, file := range files {
		if err := k.read(file); err != nil {
			return k, fmt.Errorf("%s: %w", file, err)
		}
	}
	return k, nil
}

func (k kinds) read(file string) error {
	text, err := os.ReadFile(file)
	if err != nil {
		return err
	}
	var crd apiextensionsv1.CustomResourceDefinition
	if err := yaml.Unmarshal(text, &crd); err != nil {
		return err
	}
	for _, version := range crd.Spec.Versions {
		var props apiextensions.JSONSchemaProps
		if err := apiextensionsv1.Convert_v1_JSONSchemaProps_To_apiextensions_JSONSchemaProps(
			version.Schema.OpenAPIV3Schema, &props, nil); err != nil {
			return err
		}
		k.definitions[kubernetesschema.GroupVersionKind{Group: crd.Spec.Group, Version: version.Name,
			Kind: crd.Spec.Names.Kind}] = &props
	}
	return nil
}

// check says what of an object its kind does not have.
func (k kinds) check(object []byte) error {
	var head struct {
		APIVersion string `json:"apiVersion"`
		Kind       string `json:"kind"`
	}
	if err := json.Unmarshal(object, &head); err != nil {
		return err
	}
	group, err := kubernetesschema.ParseGroupVersion(head.APIVersion)
	if err != nil {
		return err
	}
	kind := group.WithKind(head.Kind)
	if props, ok := k.definitions[kind]; ok {
		return defined(object, props)
	}
	decoder := jsonserializer.NewSerializerWithOptions(jsonserializer.DefaultMetaFactory, k.types, k.types,
		jsonserializer.SerializerOptions{Strict: true})
	_, _, err = decoder.Decode(object, nil, nil)
	return err
}

// defined checks an object against a definition: what it must have, and what it may have.
func defined(object []byte, props *apiextensions.JSONSchemaProps) error {
	var value map[string]any
	if err := json.Unmarshal(object, &value); err != nil {
		return err
	}
	validator, _, err := validation.NewSchemaValidator(props)
	if err != nil {
		return err
	}
	if wrong := validation.ValidateCustomResource(field.NewPath("object"), value, validator); len(wrong) > 0 {
		return wrong.ToAggregate()
	}
	structural, err := schema.NewStructural(props)
	if err != nil {
		return err
	}
	if unknown := pruning.PruneWithOptions(value, structural, true,
		schema.UnknownFieldPathOptions{TrackUnknownFieldPaths: true}); len(unknown) > 0 {
		return fmt.Errorf("unknown fields %q", unknown)
	}
	return nil
}
