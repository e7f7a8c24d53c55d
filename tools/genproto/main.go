// Command genproto writes the Go code of protocol buffer files beside them. It needs nothing but Go:
// the compiler is a library, and the plugins are tools of this module, at the versions it pins.
//
//	go run -C tools ./genproto ../internal/wire/agent.proto
//
// Paths are relative to the module's folder. The output depends on the input and the pinned versions
// only, so that a test can generate and compare.
package main

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"

	"github.com/bufbuild/protocompile"
	"github.com/bufbuild/protocompile/protoutil"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"
	"google.golang.org/protobuf/types/descriptorpb"
	"google.golang.org/protobuf/types/pluginpb"
)

var plugins = []string{"protoc-gen-go", "protoc-gen-go-grpc"}

func main() {
	if len(os.Args) < 2 {
		fmt.Fprintln(os.Stderr, "usage: genproto FILE.proto...")
		os.Exit(2)
	}
	for _, path := range os.Args[1:] {
		if err := generate(context.Background(), path); err != nil {
			fmt.Fprintf(os.Stderr, "genproto: %s: %v\n", path, err)
			os.Exit(1)
		}
	}
}

func generate(ctx context.Context, path string) error {
	folder, name := filepath.Split(path)
	request, err := compile(ctx, folder, name)
	if err != nil {
		return err
	}
	for _, plugin := range plugins {
		if err := run(ctx, plugin, request, folder); err != nil {
			return fmt.Errorf("%s: %w", plugin, err)
		}
	}
	return nil
}

// compile answers what a plugin reads: the file and, before it, everything that it imports.
func compile(ctx context.Context, folder, name string) ([]byte, error) {
	compiler := protocompile.Compiler{
		Resolver:       protocompile.WithStandardImports(&protocompile.SourceResolver{ImportPaths: []string{folder}}),
		SourceInfoMode: protocompile.SourceInfoStandard, // the comments
	}
	files, err := compiler.Compile(ctx, name)
	if err != nil {
		return nil, err
	}
	return proto.Marshal(&pluginpb.CodeGeneratorRequest{
		FileToGenerate: []string{name},
		Parameter:      proto.String("paths=source_relative"),
		ProtoFile:      withImports(files[0], map[string]bool{}),
	})
}

func withImports(file protoreflect.FileDescriptor, seen map[string]bool) []*descriptorpb.FileDescriptorProto {
	if seen[file.Path()] {
		return nil
	}
	seen[file.Path()] = true
	var all []*descriptorpb.FileDescriptorProto
	for i := range file.Imports().Len() {
		all = append(all, withImports(file.Imports().Get(i), seen)...)
	}
	return append(all, protoutil.ProtoFromFileDescriptor(file))
}

func run(ctx context.Context, plugin string, request []byte, folder string) error {
	command := exec.CommandContext(ctx, "go", "tool", plugin)
	command.Stdin = bytes.NewReader(request)
	command.Stderr = os.Stderr
	out, err := command.Output()
	if err != nil {
		return err
	}
	var response pluginpb.CodeGeneratorResponse
	if err := proto.Unmarshal(out, &response); err != nil {
		return err
	}
	if response.Error != nil {
		return errors.New(response.GetError())
	}
	for _, file := range response.File {
		if err := os.WriteFile(filepath.Join(folder, file.GetName()), []byte(file.GetContent()), 0o644); err != nil {
			return err
		}
	}
	return nil
}
