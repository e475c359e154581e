// Command gpu-plugin advertises nvidia.com/gpu to a kubelet, as NVIDIA's device plugin does, for GPUs that
// exist only as lines of a file: one id (GPU-<uuid>) each. The file is read again every second; a GPU whose
// line is taken away is unhealthy, as NVIDIA's plugin reports a lost one.
package main

import (
	"context"
	"flag"
	"fmt"
	"log"
	"net"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"google.golang.org/grpc"
	"google.golang.org/grpc/credentials/insecure"
	v1beta1 "k8s.io/kubelet/pkg/apis/deviceplugin/v1beta1"
)

const (
	resource = "nvidia.com/gpu"
	endpoint = "rekindle-gpu.sock"
	look     = time.Second
)

// plugin answers one kubelet's life long: a restarted kubelet clears its folder and is given a new one.
type plugin struct {
	v1beta1.UnimplementedDevicePluginServer
	idsFile string
	known   []string
}

func main() {
	folder := flag.String("folder", v1beta1.DevicePluginPath, "where the kubelet listens")
	ids := flag.String("ids-file", "", "file with one GPU id per line")
	flag.Parse()
	kubelet := filepath.Join(*folder, "kubelet.sock")
	for ; ; time.Sleep(look) {
		seen, err := os.Stat(kubelet)
		if err != nil {
			continue // the kubelet does not listen yet
		}
		if err := serve(*folder, *ids, kubelet, seen); err != nil {
			log.Print(err)
		}
	}
}

// serve returns when the kubelet's socket is another one, or cannot be registered with.
func serve(folder, ids, kubelet string, seen os.FileInfo) error {
	socket := filepath.Join(folder, endpoint)
	if err := os.Remove(socket); err != nil && !os.IsNotExist(err) {
		return err
	}
	listener, err := net.Listen("unix", socket)
	if err != nil {
		return err
	}
	server := grpc.NewServer()
	v1beta1.RegisterDevicePluginServer(server, &plugin{idsFile: ids})
	go server.Serve(listener) //nolint:errcheck // Stop ends it
	defer server.Stop()
	if err := register(kubelet); err != nil {
		return fmt.Errorf("register with %s: %w", kubelet, err)
	}
	log.Printf("registered with %s", kubelet)
	for {
		time.Sleep(look)
		now, err := os.Stat(kubelet)
		// A socket that was made anew at once may have got the same inode.
		if err != nil || !os.SameFile(seen, now) || !seen.ModTime().Equal(now.ModTime()) {
			return fmt.Errorf("the kubelet's socket is gone or another one")
		}
	}
}

func register(kubelet string) error {
	client, err := grpc.NewClient("unix://"+kubelet, grpc.WithTransportCredentials(insecure.NewCredentials()))
	if err != nil {
		return err
	}
	defer client.Close()
	ctx, cancel := context.WithTimeout(context.Background(), 10*time.Second)
	defer cancel()
	_, err = v1beta1.NewRegistrationClient(client).Register(ctx, &v1beta1.RegisterRequest{
		Version: v1beta1.Version, Endpoint: endpoint, ResourceName: resource,
	})
	return err
}

func (p *plugin) GetDevicePluginOptions(context.Context, *v1beta1.Empty) (*v1beta1.DevicePluginOptions, error) {
	return &v1beta1.DevicePluginOptions{}, nil
}

func (p *plugin) ListAndWatch(_ *v1beta1.Empty, stream v1beta1.DevicePlugin_ListAndWatchServer) error {
	var told []string
	for ; ; time.Sleep(look) {
		if err := stream.Context().Err(); err != nil {
			return err
		}
		ids, err := read(p.idsFile)
		if err != nil {
			return err
		}
		if told != nil && slices.Equal(ids, told) {
			continue
		}
		if err := stream.Send(&v1beta1.ListAndWatchResponse{Devices: p.devices(ids)}); err != nil {
			return err
		}
		told = ids
	}
}

func read(file string) ([]string, error) {
	text, err := os.ReadFile(file)
	return strings.Fields(string(text)), err
}

// devices lists every GPU that was ever there: one without a line is unhealthy, not gone.
func (p *plugin) devices(ids []string) []*v1beta1.Device {
	for _, id := range ids {
		if !slices.Contains(p.known, id) {
			p.known = append(p.known, id)
		}
	}
	var devices []*v1beta1.Device
	for _, id := range p.known {
		health := v1beta1.Unhealthy
		if slices.Contains(ids, id) {
			health = v1beta1.Healthy
		}
		devices = append(devices, &v1beta1.Device{ID: id, Health: health})
	}
	return devices
}

func (p *plugin) Allocate(_ context.Context, request *v1beta1.AllocateRequest) (*v1beta1.AllocateResponse, error) {
	answer := &v1beta1.AllocateResponse{}
	for _, container := range request.ContainerRequests {
		visible := map[string]string{"NVIDIA_VISIBLE_DEVICES": strings.Join(container.DevicesIds, ",")}
		answer.ContainerResponses = append(answer.ContainerResponses, &v1beta1.ContainerAllocateResponse{Envs: visible})
	}
	return answer, nil
}
