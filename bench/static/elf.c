/* SPDX-License-Identifier: Apache-2.0 */
/* elf.c - sections of the ELF files in which vendors' compilers deliver (cubin, zebin), by name.
 *
 * Source: ELF-64 Object File Format. Every offset is checked: the file comes from a closed compiler. */
#include "bench/static/static.h"

#include <elf.h>
#include <string.h>

const void *static_elf_section(const void *elf, size_t bytes, const char *prefix, size_t *out_bytes)
{
    const unsigned char *file = elf;
    Elf64_Ehdr head;
    Elf64_Shdr names, section;
    if (bytes < sizeof head) return NULL;
    memcpy(&head, file, sizeof head);
    if (memcmp(head.e_ident, ELFMAG, SELFMAG) != 0 || head.e_ident[EI_CLASS] != ELFCLASS64 ||
        head.e_shentsize != sizeof section || head.e_shoff > bytes ||
        head.e_shnum > (bytes - head.e_shoff) / sizeof section || head.e_shstrndx >= head.e_shnum)
        return NULL;
    memcpy(&names, file + head.e_shoff + head.e_shstrndx * sizeof names, sizeof names);
    if (names.sh_offset > bytes || names.sh_size > bytes - names.sh_offset) return NULL;
    for (uint32_t i = 0; i < head.e_shnum; i++) {
        memcpy(&section, file + head.e_shoff + i * sizeof section, sizeof section);
        const size_t length = strlen(prefix);
        if (section.sh_name > names.sh_size || names.sh_size - section.sh_name < length ||
            memcmp(file + names.sh_offset + section.sh_name, prefix, length) != 0)
            continue;
        if (section.sh_offset > bytes || section.sh_size > bytes - section.sh_offset) return NULL;
        *out_bytes = section.sh_size;
        return file + section.sh_offset;
    }
    return NULL;
}
