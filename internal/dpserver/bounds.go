package dpserver

import (
	"fmt"

	"google.golang.org/grpc/codes"
	"google.golang.org/grpc/status"
	"google.golang.org/protobuf/proto"
	"google.golang.org/protobuf/reflect/protoreflect"

	"weft/internal/wire"
	"weft/kind"
)

// WireBound is the maximum size of a field in an agent's message.
type WireBound struct {
	Items int // of a list; 0 for a field that is no list
	Bytes int // of a string or bytes, or of each in a list; 0 for a message
}

const (
	maxShortTextBytes = 64   // bytes of a run ID, a serial or a generation
	maxNameBytes      = 253  // bytes of the name of a mesh, a proxy or a secret
	maxSpiffeIDBytes  = 2048 // bytes of a SPIFFE ID (SPIFFE-ID, section 2.3)
)

// WireBounds are the bounds of every string, list and bytes field that an agent sends, by the field's full name. They
// are checked before any field of the message is used.
var WireBounds = map[protoreflect.FullName]WireBound{
	"weft.agent.v1.RegisterRequest.dataplane": {Bytes: kind.Dataplanes.MaxBytes},
	"weft.agent.v1.SignRequest.mesh":          {Bytes: maxNameBytes},
	"weft.agent.v1.SignRequest.name":          {Bytes: maxNameBytes},
	"weft.agent.v1.SignRequest.request":       {Bytes: 16 << 10},
	"weft.agent.v1.SignRequest.proxy_type":    {Bytes: maxShortTextBytes},
	"weft.agent.v1.SignRequest.secret":        {Bytes: maxNameBytes},
	"weft.agent.v1.Report.mesh":               {Bytes: maxNameBytes},
	"weft.agent.v1.Report.name":               {Bytes: maxNameBytes},
	"weft.agent.v1.Report.run":                {Bytes: maxShortTextBytes},
	"weft.agent.v1.Report.envoy_version":      {Bytes: maxNameBytes},
	"weft.agent.v1.Report.ip_families":        {Bytes: maxShortTextBytes},
	"weft.agent.v1.Report.ready_listeners":    {Items: 512}, // 256 inbounds and those that are draining
	"weft.agent.v1.Report.certificate":        {},
	"weft.agent.v1.Report.proxy_type":         {Bytes: maxShortTextBytes},
	"weft.agent.v1.Certificate.spiffe_id":     {Bytes: maxSpiffeIDBytes},
	"weft.agent.v1.Certificate.serial":        {Bytes: maxShortTextBytes},
	"weft.agent.v1.Certificate.problem":       {Bytes: 1000},
	"weft.agent.v1.ReadyListener.address":     {Bytes: maxShortTextBytes},
	"weft.agent.v1.ReadyListener.generation":  {Bytes: maxShortTextBytes},
	"weft.agent.v1.ReadyListener.serial":      {Bytes: maxShortTextBytes},
	// twice 32, while the services of a Dataplane change, and a reserve
	"weft.agent.v1.ReadyListener.spiffe_ids":     {Items: 80, Bytes: maxSpiffeIDBytes},
	"weft.agent.v1.InspectionSection.mesh":       {Bytes: maxNameBytes},
	"weft.agent.v1.InspectionSection.name":       {Bytes: maxNameBytes},
	"weft.agent.v1.InspectionSection.request":    {Bytes: maxNameBytes},
	"weft.agent.v1.InspectionSection.content":    {Bytes: 4 << 20},
	"weft.agent.v1.InspectionSection.problem":    {Bytes: 4096},
	"weft.agent.v1.InspectionSection.proxy_type": {Bytes: maxShortTextBytes},
	"weft.agent.v1.HostNamesRequest.mesh":        {Bytes: maxNameBytes},
	"weft.agent.v1.HostNamesRequest.name":        {Bytes: maxNameBytes},
	"weft.agent.v1.HostNamesRequest.version":     {Bytes: maxNameBytes},
	"weft.agent.v1.HostNamesRequest.proxy_type":  {Bytes: maxShortTextBytes},
}

// maxListenerStatusBytes bounds the SPIFFE IDs that are stored for one proxy: 256 inbounds with 32 SPIFFE IDs of 128
// bytes each.
const maxListenerStatusBytes = 1 << 20

// checkReport returns InvalidArgument for a Report with a field above its bound, or with a listener that is listed
// twice.
func checkReport(report *wire.Report) error {
	if err := checkMessage(report); err != nil {
		return err
	}
	seen := map[string]bool{}
	for _, s := range report.ReadyListeners {
		at := listenerOf(s)
		if seen[at] {
			return status.Errorf(codes.InvalidArgument,
				"the Report has the listener %s twice; each listener is reported once", at)
		}
		seen[at] = true
	}
	return nil
}

// checkServed returns InvalidArgument if the SPIFFE IDs of a Report are too large to be stored. Each inbound of a
// listener has a copy of them.
func checkServed(s *kind.DataplaneListenerStatus) error {
	bytes := 0
	for _, in := range s.Inbounds {
		for _, id := range in.SpiffeIDs {
			bytes += len(id)
		}
	}
	if bytes > maxListenerStatusBytes {
		return status.Errorf(codes.InvalidArgument,
			"the SPIFFE IDs of %d inbounds have %d bytes, at most %d are stored; use fewer services or fewer inbounds",
			len(s.Inbounds), bytes, maxListenerStatusBytes)
	}
	return nil
}

// checkMessage returns InvalidArgument for a message with a field above its bound.
func checkMessage(m proto.Message) error {
	message := m.ProtoReflect()
	if at, size, most := tooLargeField(message, ""); at != "" {
		return status.Errorf(codes.InvalidArgument, "the %s's %s has %s, at most %d are read",
			message.Descriptor().Name(), at, size, most)
	}
	return nil
}

// tooLargeField returns the first field above its bound, its size and the bound; "" if there is none.
func tooLargeField(m protoreflect.Message, path string) (at, size string, most int) {
	m.Range(func(f protoreflect.FieldDescriptor, v protoreflect.Value) bool {
		name, bound := path+string(f.Name()), WireBounds[f.FullName()]
		if !f.IsList() {
			at, size, most = tooLarge(f, v, name, bound)
			return at == ""
		}
		list := v.List()
		if list.Len() > bound.Items {
			at, size, most = name, fmt.Sprintf("%d items", list.Len()), bound.Items
			return false
		}
		for i := 0; i < list.Len() && at == ""; i++ {
			at, size, most = tooLarge(f, list.Get(i), fmt.Sprintf("%s[%d]", name, i), bound)
		}
		return at == ""
	})
	return at, size, most
}

func tooLarge(f protoreflect.FieldDescriptor, v protoreflect.Value, name string, bound WireBound) (at, size string,
	most int) {
	n := 0
	switch f.Kind() {
	case protoreflect.MessageKind:
		return tooLargeField(v.Message(), name+".")
	case protoreflect.StringKind:
		n = len(v.String())
	case protoreflect.BytesKind:
		n = len(v.Bytes())
	}
	if n > bound.Bytes {
		return name, fmt.Sprintf("%d bytes", n), bound.Bytes
	}
	return "", "", 0
}
