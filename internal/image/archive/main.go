// Command archive writes the images of a release: weft, weft-dp and weft-cni.
package main

import (
	"errors"
	"flag"
	"fmt"
	"log"
	"os"
	"path/filepath"
	"runtime"

	"weft/internal/image"
)

func main() {
	log.SetFlags(0)
	architecture := flag.String("architecture", runtime.GOARCH, "amd64 or arm64")
	programs := flag.String("programs", "", "the folder with weft, weft-dp and weft-cni, linked statically")
	envoy := flag.String("envoy", "", "the Envoy of this architecture; without it, weft-dp's image is not written")
	tag := flag.String("tag", "latest", "the tag of the images")
	out := flag.String("out", ".", "the folder for the archives")
	flag.Parse()
	if err := write(*architecture, *programs, *envoy, *tag, *out); err != nil {
		log.Fatal(err)
	}
}

func write(architecture, programs, envoy, tag, out string) error {
	images := map[string]*image.Image{
		"weft":     image.ControlPlane("weft/weft:"+tag, architecture, filepath.Join(programs, "weft")),
		"weft-cni": image.CNI("weft/weft-cni:"+tag, architecture, filepath.Join(programs, "weft-cni")),
	}
	if envoy != "" {
		if architecture != runtime.GOARCH {
			return errors.New("the libraries of Envoy and iptables are those of this machine, so the image of " +
				"weft-dp is of its architecture, " + runtime.GOARCH)
		}
		sidecar, err := image.Sidecar("weft/weft-dp:"+tag, architecture, filepath.Join(programs, "weft-dp"), envoy)
		if err != nil {
			return err
		}
		images["weft-dp"] = sidecar
	}
	if err := os.MkdirAll(out, 0o755); err != nil {
		return err
	}
	for name, i := range images {
		if err := i.AddLicenses(); err != nil {
			return err
		}
		file := filepath.Join(out, name+"-"+architecture+".tar")
		if err := i.WriteFile(file); err != nil {
			return err
		}
		fmt.Printf("%s: %s\n", file, i.Name)
	}
	return nil
}
