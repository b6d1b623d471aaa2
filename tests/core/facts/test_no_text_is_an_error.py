"""Whatever a file holds, it is text that states something or nothing."""

from hypothesis import given
from hypothesis import strategies as st

from exporter.core.facts import amd, intel, linux, mounts, nvidia, packages, parsing, pci, process
from exporter.core.facts.gpus import gpu_of_uevent

HAZARDS = st.text(st.sampled_from("\r\n\0\x1b\\\"'=: -./?0129aZ{}\uffff\u0663"), max_size=40)


WORDS = st.sampled_from(
    [
        *(
            "PCI_ID=",
            "Package: libze1\n",
            "Version: ",
            " - ",
            "Model:",
            "MemTotal: 9 kB\n",
            "size=",
            "feature mask: 0x",
        ),
        *("libnccl.so.2.21.5\n", " /opt/rocm-6.2.0/lib/libamdhip64.so.6", "HOME=/", "Max open files  1  1 files\n"),
    ]
)


@given(st.lists(st.one_of(HAZARDS, WORDS)))
def test_no_text_is_an_error(pieces: list[str]) -> None:
    text = "".join(pieces)

    pci.normalise_pci(text)
    pci.largest_bar(text)
    pci.pcie_speed(text)
    pci.pcie_width(text)
    gpu_of_uevent(text)
    amd.gpu_of_kfd_node(0, text)
    amd.memory_ecc(text)
    amd.retired_pages(text)
    amd.firmware({"mec": text})
    amd.rocm_release(text)
    amd.rocm_release_of_suffix(text)
    intel.firmware_version(text)
    nvidia.gpu_of_information("0000:c1:00.0", text)
    nvidia.driver_version(text)
    nvidia.parameters(text)
    nvidia.cuda_version(text)
    parsing.identity(text)
    parsing.number(text)
    parsing.on_or_off(text)
    parsing.bracketed_word(text)
    linux.os_name(text)
    linux.taint(text)
    linux.kernel_arguments(text)
    linux.cpu_model(text)
    linux.huge_pages(text)
    mounts.shm_size(mounts.parse_mountinfo(text), None)
    packages.package_facts(packages.dpkg_versions(text))
    packages.rpm_version(text.encode())
    process.library_facts(process.mapped_libraries(text))
    process.environment(text)
    process.limit_facts(text)
    process.mount_facts(text, text, None)
    process.distribution_facts([text])
