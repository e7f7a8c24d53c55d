package kind_test

import "testing"

func TestContainerPatchRejects(t *testing.T) {
	accepts(t, `{type: ContainerPatch, name: p, spec: {sidecarPatch: [{op: add, path: /args/-, value: '"--verbose"'}, `+
		`{op: remove, path: /ports}], initPatch: [{op: copy, from: /name, path: /env/0/value}]}}`)
	rejects(t, `{type: ContainerPatch, name: p, spec: {sidecarPatch: [%s]}}`, []rejected{
		{"nothing", ``, []string{"spec: needs sidecarPatch or initPatch"}},
		{"an operation", `{op: test, path: /image, value: '"a"'}`, []string{`spec.sidecarPatch[0].op: is "test"`}},
		{"a value that is no JSON", `{op: add, path: /image, value: a:b}`, []string{
			`spec.sidecarPatch[0].value: "a:b" is not JSON`}},
		{"no value", `{op: replace, path: /image}`, []string{"spec.sidecarPatch[0].value: is required for replace"}},
		{"a path", `{op: remove, path: image}`, []string{`spec.sidecarPatch[0].path: "image" is not a JSON pointer`}},
		{"the end of a path", `{op: remove, path: /env/}`, []string{`spec.sidecarPatch[0].path: "/env/" ends with an empty part`}},
		{"the name", `{op: replace, path: /name, value: '"a"'}, {op: move, from: /name, path: /image}`, []string{
			"spec.sidecarPatch[0].path: the name of the container can't change",
			"spec.sidecarPatch[1].from: the name of the container can't change"}},
	})
}
