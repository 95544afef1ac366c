package verifier

// RunInProcess scores a task with separate tests as a machine without namespaces does.
func RunInProcess(spec Spec) Spec {
	spec.Separate, spec.standIn = false, true
	return spec
}
